"""Train one network once, by hand or as the workflow's rule `train`.

    python scripts/train.py --model lenet --strategy ddp --workers 2 --epochs 3

A model with an entry in the config is trained with the settings there. The first of five folds is
the test fold. For all other settings, write a study.

Run the same command again to resume. A run that was stopped resumes where it was. A run that was
killed resumes from its last checkpoint. Checkpoints are saved every ten minutes and after epochs,
though not after every short one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from allcores.machine import lifetime
from allcores.parallel import failures

# Before the other imports: they take seconds, and the caller may die meanwhile.
if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv)
    lifetime.adopt_orphans()

import faulthandler
import os
import signal
import traceback
from pathlib import Path

from allcores.machine import cores, lean_torch
from allcores_study.config import commandline, registry
from allcores_study.config.run import AUTO, Conditions
from allcores_study.data import preparation
from allcores_study.records import fingerprint, identity, marks, run_files
from allcores_study.records.results_folder import PROGRESS
from allcores_study.records.run_files import METRICS
from allcores_study.stacking.several import SharedJob
from allcores_study.training import progress, recipes

if TYPE_CHECKING:
    from argparse import Namespace
    from types import FrameType

    from allcores_study.config.run import Run
    from allcores_study.training.run_request import RunRequest

BY_HAND = Path("results/by_hand")
# Variables in which srun, PMIx, Open MPI's mpirun and others give each process its rank.
RANK_VARIABLES = ("SLURM_PROCID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
STOPPING = 3.0  # seconds after which a request to stop is repeated


def main(flags: Namespace) -> None:
    configured = commandline.run_of(flags)
    node = node_of(configured)
    is_by_hand = not (flags.settings and flags.output)
    if not (is_by_hand or node or progress.of_process.file):  # the last: in a shared job
        flags.output.mkdir(parents=True, exist_ok=True)
        # Otherwise, if this run fails, the results of an earlier one would be shown as its own.
        (flags.output / METRICS).unlink(missing_ok=True)
        progress.of_process.start_file(flags.output / PROGRESS)
        progress.of_process.begin(configured.path)
    dataset = configured.dataset
    data_folder = flags.data or BY_HAND / "data" / f"{dataset.label}_{dataset.digest}"
    if not flags.data:
        # Loading may compute with torch, and ranks cannot be forked from a process with threads.
        cores.set_thread_variables(1)
        preparation.prepare(dataset, "results/downloads", data_folder)
    # Set before the imports: numpy and torch read these variables when they are imported.
    cores.set_thread_variables(configured.plain.threads_per_worker)
    lean_torch.import_torch()
    from allcores_study.planning import trials
    from allcores_study.stacking import stacks as stacking
    from allcores_study.tasks import base as tasks
    from allcores_study.training import results
    from allcores_study.training.experiment import join, train_and_score

    if not flags.settings:  # the workflow has already smoke-tested its models (check_models.py)
        trials.check_in_child(configured.plain, data_folder, flags.timeout)
    run = with_recipe(configured, flags, data_folder) if configured.has_auto else configured
    assert isinstance(run.threads_per_worker, int), "auto is filled in"
    cores.set_thread_variables(run.threads_per_worker)
    needed = run.cores_on_node
    if flags.cores is not None and flags.cores < needed and not flags.oversubscribe:
        raise ValueError(
            f"this run needs {needed} cores ({needed // run.threads_per_worker} processes x "
            f"{run.threads_per_worker} threads), but was given {flags.cores}"
        )
    if needed > cores.allowed():
        print(f"{needed} threads on {cores.allowed()} cores: expect it to be slow", flush=True)

    request = request_of(flags, run, configured, data_folder)
    if node:
        join(request, node)
        return
    if not flags.settings:  # the folders of the workflow's results are its own
        results.refuse_foreign(request.output, request.checkpoint_folder)
    elif stacks := stacking.stacks_of([request])[0]:
        stacking.train_stacks(stacks)
        finish(flags, request)
        return
    result = train_and_score(request)
    finish(flags, request)
    if result["diverged"]:
        print(f"diverged after {len(result['epochs'])} whole epochs; recorded in {request.output}")
    else:
        task = tasks.named(result["task"], result["outputs"])
        print(
            f"{task.in_words(result)} on {result['held_out_samples']:,} "
            f"{request.configured.scored_on}; {result['training_seconds']:.2f} s of training; "
            f"results in {request.output}"
        )


def request_of(flags: Namespace, run: Run, configured: Run, data_folder: Path) -> RunRequest:
    """Return the request for the run that the flags describe.

    Args:
        run, configured: the run with `auto` filled in, and as configured.
    """
    from allcores_study.training.run_request import Execution, RunRequest

    # One folder per set of settings, so that two runs by hand never share one.
    name = f"{run.model.label}_{run.strategy.label}_w{run.workers}_{run.digest}"
    name += "_curves" if flags.curves else ""
    execution = Execution(
        not flags.no_pinning,
        flags.timeout,
        60 * flags.checkpoint_minutes,
        ends_process=True,
    )
    return RunRequest(
        run=run,
        configured=configured,
        data_folder=data_folder,
        checkpoint_folder=flags.checkpoints or BY_HAND / "checkpoints" / name,
        output=flags.output or BY_HAND / name,
        fold_file=flags.fold_of,
        execution=execution,
        conditions=Conditions(flags.curves, flags.exclusive),
        cores_of_call=flags.cores_of_call,
    )


def finish(flags: Namespace, request: RunRequest) -> None:
    """Mark the results of a run as complete, in place of earlier ones."""
    run_files.withdraw_stored(request.output)
    marks.put_all(flags.mark)


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


def with_recipe(request: Run, flags: Namespace, data_folder: Path) -> Run:
    """Return the run with every `auto` filled in, after measuring what is not measured yet."""
    file = flags.recipe or BY_HAND / "recipes" / recipes.file_name(request)
    if flags.recipe and request.nodes == 1:  # several nodes share one recipe
        file = recipes.for_this_processor(file)
    available = min(cores.allowed(), flags.cores_of_call or cores.allowed())
    needed = available if request.threads_per_worker == AUTO else 1
    if recipes.cores_measured(file) < needed:
        print("measuring the fastest recipe for this model on this machine", flush=True)
        recipes.calibrate(request, data_folder, available, file)
    run = recipes.fill_in(request, file, flags.cores or cores.allowed())
    print(f"fastest: {', '.join(map(str, run.recipe.values()))} thread(s)", flush=True)
    return run


def stop(number: int, frame: FrameType | None) -> NoReturn:
    # Repeated, since Python drops exceptions in some callbacks, such as those of fork() and ctypes.
    signal.setitimer(signal.ITIMER_REAL, STOPPING)
    is_sent = number != signal.SIGALRM
    raise KeyboardInterrupt(signal.Signals(number).name if is_sent else "a signal")


def several(flags_of_job: Namespace) -> int:
    """Train the runs of a shared job, and return an exit status."""
    given = [] if flags_of_job.cores is None else ["--cores", str(flags_of_job.cores)]
    job = SharedJob(flags_of_job.job)
    if not job.to_train:  # all are up to date, or were trained before the job was started again
        marks.put_all(flags_of_job.mark)
        return 0
    first = commandline.run_of(parsed(next(iter(job.to_train.values())), []))
    cores.set_thread_variables(first.plain.threads_per_worker)
    lean_torch.import_torch()
    if first.is_estimator:  # its package takes a second to import, and all runs have this model
        # The runs record the code that is imported here, even if a file is edited meanwhile.
        identity.before_data(first)
        registry.model(first.model.name).load()
        fingerprint.loaded()
    from allcores_study.stacking import stacks as stacking

    def stack(job: SharedJob, tell: Callable[[list[str]], None]) -> None:
        requests: dict[str, RunRequest] = {}
        for path, arguments in job.to_train.items():
            flags = parsed(arguments, given)
            run = configured = commandline.run_of(flags)
            if configured.has_auto:
                run = with_recipe(configured, flags, flags.data)
            requests[path] = request_of(flags, run, configured, flags.data)
        path_of = {request.output: path for path, request in requests.items()}
        stacks, others = stacking.stacks_of(requests.values())
        for request, why in others:
            print(f"{path_of[request.output]} is trained alone: {why}", flush=True)
        tell([path_of[request.output] for request, _ in others])
        stacking.train_stacks(
            stacks,
            begin=lambda request: job.begin(path_of[request.output]),
            end=lambda request: job.end(path_of[request.output], request.output),
        )

    failed = job.train(
        stack,
        train_one=lambda arguments: one(parsed(arguments, given)),
        output_of=lambda arguments: parsed(arguments, given).output,
        program=program,
    )
    if failed:
        print(f"train.py: {len(failed)} runs of this job failed", file=sys.stderr)
        return 1
    marks.put_all(flags_of_job.mark)
    return 0


def parsed(arguments: list[str], given: list[str]) -> Namespace:
    """Parse the flags of one run of a job, and those that all of its runs are given."""
    return commandline.parse(arguments + given, __doc__)


def one(flags: Namespace) -> int:
    """Train the run that the flags describe, and return an exit status."""
    main(flags)
    return 0


def program(train: Callable[..., int], *arguments: Any) -> int:
    """Call a function in a process that ends with it, and report what stopped it.

    Returns:
        An exit status.
    """
    status = 1
    try:
        for number in (*lifetime.signals_to_stop(), signal.SIGALRM):
            signal.signal(number, stop)
        status = train(*arguments)
    except (ValueError, OSError, failures.RankFailedError) as error:
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


if __name__ == "__main__":
    faulthandler.enable()  # prints a traceback on fatal signals, such as a bus error
    flags = commandline.parse(sys.argv[1:], __doc__)
    del sys.argv[1:]  # a user's module may also read them
    status = program(several, flags) if flags.job else program(one, flags)
    if status == 0:
        progress.of_process.end(progress.TRAINED)
    # Everything is written; tearing down torch's modules would take another 0.7 s of every run.
    os._exit(status)
