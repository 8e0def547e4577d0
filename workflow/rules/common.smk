# What the rules share: the table of runs, and what each run takes.

import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path

# Snakemake keeps every job in memory, and none of them is garbage: looking for some less often saves a
# large dry run a tenth of its time.
gc.set_threshold(200_000)

sys.path.insert(0, f"{workflow.basedir}/scripts")

from allcores.analysis import products
from allcores.data import preparation
from allcores.study import checks, estimate, fingerprint, grid, identity
from allcores.training import recipes
from allcores.study import preflight
from allcores.study.commandline import TIMEOUT
from allcores.study.conditions import Conditions
from allcores.study.run import PATH
from snakemake.utils import update_config

# Numbers inside of what --config gives arrive as texts.
update_config(config, checks.typed(workflow.config_settings.config or {}))

# Each config has a folder of its own.
try:
    RESULTS = f"results/{grid.name_of(workflow.configfiles, workflow.basedir)}"
except ValueError as error:
    sys.exit(str(error))
# The answer to what a config leaves open, for one model with one number of workers.
RECIPE_FILE = f"{RESULTS}/recipes/{{dataset}}/{{model}}_w{{workers}}t{{threads}}.json"
# What a run ends with.
RUN_FILES = ("metrics.json", "utilisation.csv", "weights.pt")
# The rules that come before all tables and figures.
OF_RUNS = ("prepare_dataset", "assign_folds", "calibrate", "train")
# Set for a call that makes tables of those runs that there are.
WITHOUT_MISSING = "ALLCORES_WITHOUT_MISSING"


def is_there(path):
    return all(os.path.exists(f"{RESULTS}/runs/{path}/{file}") for file in RUN_FILES)


def stop_at(findings):
    if findings:
        # Not a WorkflowError: Snakemake would put lines of this file below the findings.
        sys.exit("\n".join(["The configuration cannot be run:", *findings]))


def local_cores():
    """The cores of this call; None where a cluster has them."""
    return workflow.global_resources["_cores"].value


if workflow.is_main_process:  # what a job of a cluster is part of has been checked
    # A dry run without --cores says 1.
    told_cores = None if local_cores() == 1 else local_cores()
    stop_at(checks.findings(config, workflow.configfiles, told_cores))
    stop_at(list(filter(None, [grid.origin_of(workflow.configfiles, RESULTS)])))

TABLE = grid.expand(config)
if WITHOUT_MISSING in os.environ:
    TABLE = TABLE.without([path for path in TABLE.runs if not is_there(path)])
TURNS = TABLE.turns()
# What each study ends with: (study, file).
PRODUCTS = [(name, file) for name in TABLE.studies for file in products.files(config, name)]

# On a cluster, too, a run that must be alone gets a node to itself. Each function costs every dry run.
CLUSTER_RESOURCES = {}
if TABLE.exclusive:
    CLUSTER_RESOURCES["slurm_extra"] = lambda wildcards: (
        "--exclusive" if run_of(wildcards).path in TABLE.exclusive else ""
    )


def one_of(values):
    return "|".join(re.escape(str(value)) for value in values)


wildcard_constraints:
    **{name: one_of(values) for name, values in TABLE.wildcards().items()},
    study=one_of(TABLE.studies),
    folds="[0-9]+",


onstart:
    stop_at(checks.findings(config, workflow.configfiles, local_cores()))
    stop_at(preflight.findings(TABLE, workflow.configfiles, f"{RESULTS}/tried_out.json"))
    grid.note_origin(workflow.configfiles, RESULTS)


onerror:
    make_do()


def run_of(wildcards):
    return TABLE.runs[PATH.format(**wildcards)]


def most_cores():
    """Those of this call; on a cluster, as many as the largest run takes."""
    return local_cores() or max(run.cores for run in TABLE.runs.values())


def run_threads(wildcards, input):
    """A run that must be alone claims every core; it uses its own only."""
    run = run_of(wildcards)
    if run.is_open and Path(input.recipe).exists():
        run = recipes.fill_in(run, input.recipe, most_cores())
    return local_cores() or run.cores if run.path in TABLE.exclusive else run.cores


def urgency(wildcards):
    """Runs that must be alone come first, in turns, so that the others fill the cores without a break;
    of these the longest come first."""
    run = run_of(wildcards)
    return 1e8 - TURNS[run.path] if run.path in TURNS else estimate.seconds(run)


def dataset_choice(wildcards):
    return grid.choice(config, "datasets", wildcards.dataset)


def inputs_of(wildcards):
    run = run_of(wildcards)
    folder = f"{RESULTS}/data/{run.dataset.label}"
    found = {"info": f"{folder}/dataset.json"}
    if run.folds is not None:
        found["folds"] = f"{folder}/{run.folds}folds_seed{run.seed}.json"
    if run.is_open:
        found["recipe"] = RECIPE_FILE.format(**run.wildcards)
    return found


def asking(wildcards):
    """A run that asks for the recipe of these wildcards."""
    return next(
        run
        for run in TABLE.runs.values()
        if run.is_open and all(str(run.wildcards[key]) == value for key, value in wildcards.items())
    )


def conditions_of(run):
    """What is asked of a run beside its weights."""
    return Conditions.asked(f"{RESULTS}/runs/{run.path}", run.curves, run.path in TABLE.exclusive)


def decisive(wildcards):
    """All of a run that makes it run again when it changes, but for its data."""
    run = run_of(wildcards)
    return f"{json.dumps(identity.before_data(run))} {conditions_of(run).generation}"


def train_command(wildcards, input):
    """The call of scripts/train.py for a run."""
    run = run_of(wildcards)
    conditions = conditions_of(run)
    return [
        *[sys.executable, f"{workflow.basedir}/scripts/train.py"],
        *["--settings", run.to_json()],
        *["--data", f"{RESULTS}/data/{run.dataset.label}"],
        *(["--fold-of", input.folds] if run.folds is not None else []),
        *(["--recipe", input.recipe] if run.is_open else []),
        *([] if config.get("pinning", True) else ["--no-pinning"]),
        *(["--oversubscribe"] if run.path in TABLE.oversubscribe else []),
        *(["--exclusive"] if conditions.exclusive else []),
        *["--generation", conditions.generation],
        *(["--cores-of-call", local_cores()] if local_cores() else []),
        *["--timeout", config.get("timeout", TIMEOUT)],
        *["--output", f"{RESULTS}/runs/{run.path}"],
        # No output of the rule: those of a job that fails are deleted, and from this it resumes.
        *["--work", f"{RESULTS}/checkpoints/{run.path}"],
    ]


def make_do():
    """After a failure: the tables and figures of the runs that there are, with the holes marked."""
    if not workflow.is_main_process or WITHOUT_MISSING in os.environ:
        return
    if not any(map(is_there, TABLE.runs)):
        return
    files = [str(file) for file in workflow.overwrite_configfiles]
    given = workflow.config_settings.config_args
    of_results = [rule.name for rule in workflow.rules if rule.name not in OF_RUNS]
    command = [sys.executable, "-m", "snakemake", "-s", workflow.main_snakefile, "--nolock"]
    command += ["--cores", str(local_cores() or 1), "--quiet", "--allowed-rules", *of_results]
    command += (["--configfile", *files] if files else []) + (["--config", *given] if given else [])
    subprocess.run(command, env=os.environ | {WITHOUT_MISSING: "1"})


def runs_of(wildcards):
    return TABLE.of(wildcards.study)


def baseline_of(wildcards):
    """What speedups refer to: this strategy, with its fewest workers and threads."""
    asked = config["studies"][wildcards.study]
    return asked.get("baseline") or runs_of(wildcards)[0].strategy.label


def of_other(wildcards, name):
    """A tidy CSV of the study against which this one is held."""
    return f"{RESULTS}/studies/{config['studies'][wildcards.study]['against']}/{name}.csv"


def found_in(wildcards):
    """The tables of a study that its verdict is made from."""
    names = products.spoken_of(config, wildcards.study)
    return {name: f"{RESULTS}/studies/{wildcards.study}/{name}.csv" for name in names}


def target_of(wildcards):
    return config["studies"][wildcards.study].get("target_accuracy")


def facts_of(wildcards):
    """What the sentences of a verdict need to know beside the tables."""
    return {
        "baseline": baseline_of(wildcards),
        "target": target_of(wildcards),
    }


def references_of(wildcards):
    return config["studies"][wildcards.study].get("references")
