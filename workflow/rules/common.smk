# What the rules share: the table of runs, and what Snakemake has to know of each.

import atexit
import contextlib
import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

# Snakemake keeps every job in memory and none of them is garbage: collecting less often saves a
# large dry run a tenth of its time, and not at all at the end saves every call 0.4 s.
gc.set_threshold(200_000)
atexit.register(gc.freeze)

sys.path.insert(0, f"{workflow.basedir}/scripts")

from allcores.analysis.jobs import SelectionJobs, StudyJob
from allcores.campaign import board, calls
from allcores.data.jobs import DataJobs
from allcores.files import write_text
from allcores.machine import cores, memory, slurm, warm_start
from allcores.machine.warm_start import PANDAS, TORCH
from allcores.planning import choose, preflight
from allcores.planning.estimate import Estimates
from allcores.planning.jobs import RunJobs
from allcores.study import checks, fingerprint, grid
from allcores.study import results_folder, sweeps, yamlfile
from allcores.study.results_folder import RUN_FILES, ResultsFolder
from allcores.study.run import PATH
from snakemake.logging import logger
from snakemake.utils import update_config

# Numbers inside of what --config gives arrive as texts.
update_config(config, yamlfile.typed(workflow.config_settings.config or {}))

# Each config has a folder of its own.
try:
    RESULTS = f"results/{results_folder.name_of(workflow.configfiles, workflow.basedir)}"
except ValueError as error:
    sys.exit(str(error))
FOLDER = ResultsFolder(RESULTS)
AT_THE_END = contextlib.ExitStack()
# The rules that come before all tables and figures.
OF_RUNS = ("prepare_dataset", "assign_folds", "assign_inner_folds", "calibrate", "train")
# How a program is called on one of several nodes, and how many cores each has: see profiles/allocation.sh.
LAUNCHER = os.environ.get("ALLCORES_LAUNCHER", "")
NODE_CORES, NODES = "ALLCORES_NODE_CORES", "ALLCORES_NODES"
# The cores that a run has on each of its nodes, for the shell.
CORES_ON_NODE = "$(({threads} / {resources.nodes}))" if LAUNCHER else "{threads}"
# The config files and the settings that this call was given.
CALLED_WITH = workflow.overwrite_configfiles, workflow.config_settings.config_args or []
# Set for a call that makes tables of those runs that there are.
WITHOUT_MISSING = "ALLCORES_WITHOUT_MISSING"


def stop_at(findings, what="The configuration cannot be run"):
    if findings:
        # Not a WorkflowError: Snakemake would put lines of this file below the findings.
        sys.exit("\n".join([f"{what}:", *findings]))


def local_cores():
    """The cores of this call; None where a cluster has them."""
    return workflow.global_resources["_cores"].value


def cores_of_a_run():
    """As many as a run can have in this call; None where a cluster has them."""
    return int(os.environ[NODE_CORES]) if LAUNCHER else local_cores()


def most_cores():
    """The cores of this call; on a cluster, as many as the largest run takes on a node."""
    return cores_of_a_run() or max(run.cores_on_node for run in TABLE.runs.values())


def on_cluster():
    return bool(LAUNCHER) or local_cores() is None or not workflow.is_main_process


def nodes_of_call():
    """As many as a run can have in this call; None where a cluster has them."""
    return int(os.environ[NODES]) if LAUNCHER else local_cores() and 1


def written(config):
    """The file in which a whole config is kept, with what --config gave."""
    file = Path(FOLDER.config(config))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(config))
    return file


def is_told_cores():
    """Whether this call says how many cores; a dry run that does not says 1."""
    return local_cores() != 1 or any(word.startswith(("--cores", "-c", "-j")) for word in sys.argv)


if workflow.is_main_process:  # what a job of a cluster is part of has been checked
    told = (cores_of_a_run(), nodes_of_call()) if is_told_cores() else (None, None)
    stop_at(checks.findings(config, workflow.configfiles, *told))
    stop_at(results_folder.foreign(workflow.configfiles, RESULTS))

# The config with all that it leaves to be chosen: now, if that is not known.
try:
    asked = cores_of_a_run() if is_told_cores() else cores.allowed()
    # A job of a cluster goes by what the call that submitted it has chosen.
    is_told = is_told_cores() and workflow.is_main_process
    CONFIG = choose.chosen(sweeps.expanded(config), FOLDER, asked, is_told, written)
except ValueError as error:
    sys.exit(str(error))
TABLE = grid.expand(CONFIG)
if WITHOUT_MISSING in os.environ:
    TABLE = FOLDER.without_missing(TABLE)
    if not TABLE.studies:
        sys.exit("nothing is complete enough for a table")
STUDIES = [StudyJob(CONFIG, TABLE, FOLDER, study) for study in TABLE.studies]


def warm(process):
    """The name of a warm process, where there is one: see allcores/machine/warm_start.py."""
    return process if local_cores() is not None and workflow.is_main_process else None


FORKED = warm(TORCH) is not None and not LAUNCHER
ESTIMATES = Estimates(TABLE, FOLDER, most_cores(), FORKED)

# Runs are packed by memory, too: by what is free now, if nobody says --resources mem_mb=...
if local_cores() is not None and not LAUNCHER and "mem_mb" not in workflow.global_resources:
    workflow.global_resources["mem_mb"] = memory.free_mb()


def one_of(values):
    return "|".join(re.escape(str(value)) for value in values)


wildcard_constraints:
    **{name: one_of(values) for name, values in TABLE.wildcards().items()},
    folds="[0-9]+",
    inner="[0-9]+",
    selection=one_of(TABLE.choices),


def stop(number, frame):
    """SIGTERM. Snakemake's own handler may wait for ever for a lock that its thread holds already."""
    workflow.scheduler._user_kill = "graceful"
    threading.Thread(target=workflow.scheduler.exit_gracefully).start()


onstart:
    signal.signal(signal.SIGTERM, stop)
    stop_at(checks.findings(config, workflow.configfiles, cores_of_a_run(), nodes_of_call()))
    if local_cores() is not None:
        # Snakemake limits jobs per second by timers, each of which sets the next, and every job that
        # ends sets one more: after 1,000 jobs it looks 1,000 times a second for what it could start.
        workflow.scheduler.job_rate_limiter = None
        # A dataset comes first, and PANDAS prepares it: it can import while TORCH tries out models.
        prepares = not all(os.path.exists(FOLDER.data(run)) for run in TABLE.runs.values())
        warm_start.start(TORCH, f"{RESULTS}/logs/warm_process_{TORCH}.log")
        warm_start.start(PANDAS, f"{RESULTS}/logs/warm_process_{PANDAS}.log", at_once=prepares)
    submitted = []
    if workflow.executor_plugin.name == "slurm":
        stop_at(list(slurm.unusable()), "Jobs cannot be submitted from here")
        submitted = [job for job in workflow.dag.needrun_jobs() if not job.is_local]
        stop_at(list(slurm.still_there(submitted)), "SLURM still has jobs of an earlier call")
    stop_at(
        preflight.findings(
            TABLE,
            workflow.configfiles,
            FOLDER.tried_out,
            warm_start.command(preflight.PROGRAM, warm(TORCH)),
        )
    )
    ESTIMATES.read_again()  # what was counted in the models now
    workflow.dag.update_priority()
    for job in submitted:
        job.reset_params_and_resources()
    stop_at(list(slurm.hopeless(submitted)), "SLURM would never start these jobs")
    results_folder.note_origin(workflow.configfiles, RESULTS)
    written(CONFIG)
    todo = {job.log[0] for job in workflow.dag.needrun_jobs() if job.rule.name == "train"}
    AT_THE_END.callback(
        board.begin(FOLDER, TABLE, todo, ESTIMATES, local_cores(), on_cluster(), logger).close
    )


onsuccess:
    AT_THE_END.close()


onerror:
    AT_THE_END.close()
    if not is_told_to_stop(log):
        make_tables_of_the_others()


def is_told_to_stop(logs):
    """Whether the user, or the batch system, has ended this call: by SIGTERM, or else SIGINT."""
    graceful = workflow.scheduler._user_kill is not None
    return graceful or any("on user request" in Path(log).read_text() for log in logs)


def make_tables_of_the_others():
    """After a failure: the tables and figures of the runs that there are, with the holes marked."""
    if not workflow.is_main_process or WITHOUT_MISSING in os.environ:
        return
    if not any(map(FOLDER.has, TABLE.runs)):
        return
    of_results = [rule.name for rule in workflow.rules if rule.name not in OF_RUNS]
    command = calls.within(workflow.main_snakefile, local_cores() or 1, of_results, *CALLED_WITH)
    subprocess.run(command, env=os.environ | {WITHOUT_MISSING: "1"})
