"""Train one network once by hand, or the runs of a job of the workflow.

    python scripts/train.py --model lenet --strategy ddp --workers 2 --epochs 3
    python scripts/train.py --job results/mine/runs/PATH/job.json

A model with an entry in the config is trained with the settings there. The first of five folds is
the test fold. For all other settings, write a study. The file of a job that failed is in the folder
of its run.

Run the same command again to resume. A run that was stopped resumes where it was. A run that was
killed resumes from its last checkpoint. Checkpoints are saved every ten minutes and after epochs,
though not after every short one. A small network that takes seconds, and an estimator, start over.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

from allcores.machine import lifetime
from allcores.parallel.reports import RankFailedError

# Before the other imports: they take seconds, and the caller may die meanwhile.
if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv)
    lifetime.adopt_orphans()

import argparse
import dataclasses
import faulthandler
import os
import signal
import traceback
from pathlib import Path

from allcores.machine import cores
from allcores_study.campaign import by_hand
from allcores_study.config import registry
from allcores_study.data import preparation
from allcores_study.records import fingerprint, identity, marks
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.records.run_files import METRICS
from allcores_study.stacking import several
from allcores_study.training import choosing, progress, run_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from allcores_study.config.run import Run
    from allcores_study.training.run_request import RunRequest

# Variables in which srun, PMIx, Open MPI's mpirun and others give each process its rank.
RANK_VARIABLES = ("SLURM_PROCID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
STOPPING = 3.0  # seconds after which a request to stop is repeated


def train(file: Path, available: int | None) -> int:
    """Train the runs of a job, and return an exit status.

    Args:
        file: of the job.
        available: number of cores of the job on each node; None: not limited.
    """
    results, requests = run_request.read(file)
    node, log = node_of(requests[0].run), file.with_suffix(".jsonl")
    if node == 0:
        # What was trained before the job was started again.
        known = progress.read(log)
        trained = {path for path, one in known.items() if one.state == progress.TRAINED}
        progress.of_process.start_file(log, trained if len(requests) > 1 else ())
        requests = [one for one in requests if len(requests) == 1 or one.run.path not in trained]
    if not requests:
        return 0
    if len(requests) == 1:
        requests, lost = [chosen(requests[0], ResultsFolder(results), node)], 0
    else:
        requests, lost = all_chosen(requests, ResultsFolder(results))
    if node == 0:
        requests = [one for one in requests if not is_trained(one, ResultsFolder(results))]
    if not requests:
        return 1 if lost else 0
    run = requests[0].run  # those of a job occupy as many cores, and have the same model
    needed = run.cores_on_node
    if available is not None and available < needed and not requests[0].oversubscribe:
        raise ValueError(
            f"this run needs {needed} cores ({needed // run.threads_per_worker} processes x "
            f"{run.threads_per_worker} threads), but was given {available}"
        )
    if needed > cores.allowed():
        print(f"{needed} threads on {cores.allowed()} cores: expect it to be slow", flush=True)
    # Set before the imports: numpy and torch read these variables when they are imported.
    cores.set_thread_variables(run.threads_per_worker)
    if len(requests) == 1 and not lost:
        return train_alone(requests[0], node)
    if run.is_estimator:  # its package takes a second to import, and all runs have this model
        # The runs record the code that is imported here, even if a file is edited meanwhile.
        identity.before_data(run)
        registry.model(run.model.name).load()
        fingerprint.loaded()
    failed = lost + len(several.train(requests, train_alone, program))
    if failed:
        print(f"train.py: {failed} runs of this job failed", file=sys.stderr)
    return 1 if failed else 0


def chosen(request: RunRequest, folder: ResultsFolder, node: int) -> RunRequest:
    """Return the request with the candidate that is chosen now, if it is for a chosen run."""
    if request.selection is None:
        return request
    label = choosing.choose(request.selection, folder, is_recorded=node == 0)
    print(f"chosen: {label}", flush=True)
    return dataclasses.replace(request, run=request.selection.outer[label])


def is_trained(request: RunRequest, folder: ResultsFolder) -> bool:
    """Return whether a chosen run has the results of what was chosen, before by another choice."""
    run = request.run
    record = folder.record(run.path) if request.selection and run.nodes == 1 else None
    if record is None or request.again or folder.damaged_file(run.path):
        return False
    made_of = identity.made_of(identity.before_data(run), preparation.made_of(run.dataset))
    is_asked = request.conditions.are_met_by(record.content["conditions"])
    if not (is_asked and record.is_up_to_date(made_of)):
        return False
    print(f"{run.path}: its results are those of what was chosen", flush=True)
    progress.of_process.end(progress.TRAINED, run.path)
    return True


def all_chosen(requests: list[RunRequest], folder: ResultsFolder) -> tuple[list[RunRequest], int]:
    """Return (the requests with what is chosen now, how many have nothing to choose)."""
    ready = []
    for request in requests:
        try:
            ready.append(chosen(request, folder, 0))
        except (ValueError, OSError) as error:
            print(f"{request.run.path}: {error}", file=sys.stderr)
            progress.of_process.end(progress.FAILED, request.run.path, str(error))
    return ready, len(requests) - len(ready)


def train_alone(request: RunRequest, node: int = 0) -> int:
    """Train a run in this process, and return 0."""
    from allcores_study.stacking import stacks as stacking
    from allcores_study.tasks import base as tasks
    from allcores_study.training.experiment import join, train_and_score

    if node:
        join(request, node)
        return 0
    # Otherwise, if this run fails, the results of an earlier one would be shown as its own.
    (request.output / METRICS).unlink(missing_ok=True)
    progress.of_process.begin(request.run)
    if stacks := stacking.stacks_of([request])[0]:
        stacking.train_stacks(stacks)
        return 0
    result = train_and_score(dataclasses.replace(request, ends_process=True))
    if result["diverged"]:
        print(f"diverged after {len(result['epochs'])} whole epochs; recorded in {request.output}")
    else:
        task = tasks.named(result["task"], result["outputs"])
        print(
            f"{task.in_words(result)} on {result['held_out_samples']:,} "
            f"{request.run.scored_on}; {result['training_seconds']:.2f} s of training; "
            f"results in {request.output}"
        )
    return 0


def node_of(run: Run) -> int:
    """Return the number of this node in the run; a launcher starts one process on each."""
    if run.nodes == 1:
        return 0
    for name in RANK_VARIABLES:
        rank = os.environ.get(name, "")
        if rank.isdecimal() and int(rank) < run.nodes:
            return int(rank)
    raise ValueError(
        f"this run has {run.nodes} nodes; start it on each by a launcher such as `srun` "
        f"(found none of {', '.join(RANK_VARIABLES)} with a number below {run.nodes})"
    )


def stop(number: int, frame: FrameType | None) -> NoReturn:
    # Repeated, since Python drops exceptions in some callbacks, such as those of fork() and ctypes.
    signal.setitimer(signal.ITIMER_REAL, STOPPING)
    is_sent = number != signal.SIGALRM
    raise KeyboardInterrupt(signal.Signals(number).name if is_sent else "a signal")


def program(function: Callable[..., int], *arguments: Any) -> int:
    """Call a function in a process that ends with it, and report what stopped it.

    Returns:
        An exit status.
    """
    status = 1
    try:
        for number in (*lifetime.signals_to_stop(), signal.SIGALRM):
            signal.signal(number, stop)
        status = function(*arguments)
    except (ValueError, OSError, RankFailedError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        progress.of_process.end(progress.FAILED, error=str(error))
    except KeyboardInterrupt as error:
        # Printing may block forever, if nobody reads it.
        signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
        signal.setitimer(signal.ITIMER_REAL, STOPPING)
        progress.of_process.end(progress.STOPPED)
        print(
            f"train.py: stopped by {error}; the same command resumes from the last checkpoint",
            file=sys.stderr,
        )
    except BaseException as error:
        traceback.print_exc()
        progress.of_process.end(
            progress.FAILED, error="".join(traceback.format_exception_only(error))
        )
    finally:
        lifetime.end_descendants()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def main(flags: argparse.Namespace) -> int:
    status = train(flags.job or by_hand.job_of(flags), flags.cores)
    if status == 0:
        marks.put_all(flags.mark)
    return status


if __name__ == "__main__":
    faulthandler.enable()  # prints a traceback on fatal signals, such as a bus error
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    by_hand.add_flags(parser)
    add = parser.add_argument_group("for the workflow").add_argument
    add("--job", type=Path, metavar="FILE", help="the runs to train, instead of the flags above")
    add("--cores", type=int, metavar="N", help="cores on each node; an error if it needs more")
    marks.add_flag(add)
    flags = parser.parse_args()
    if not (flags.job or flags.model):
        parser.error("--model is missing; try --help")
    del sys.argv[1:]  # a user's module may also read them
    status = program(main, flags)
    if status == 0:
        progress.of_process.end(progress.TRAINED)
    # Everything is written; tearing down torch's modules would take another 0.7 s of every run.
    os._exit(status)
