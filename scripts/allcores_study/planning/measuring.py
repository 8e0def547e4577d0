"""Measure a workload: train it for a second, with the program that trains it for hours."""

from __future__ import annotations

import dataclasses
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores.machine import lifetime
from allcores.parallel.failures import RankFailedError
from allcores_study.data import storage, tokens
from allcores_study.data.tokens import Vocabulary
from allcores_study.planning.prediction import Measurement
from allcores_study.training import recipes

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess

    from allcores_study.config.run import Run
    from allcores_study.planning.workload import Sizes, Workload

# Seconds of a measured epoch, unless a step lasts longer, and of all epochs. The first epoch is
# warm-up.
EPOCH_SECONDS, SECONDS, MOST_EPOCHS = 0.5, 0.7, 9
# If the first step lasts longer than this, in seconds, only that one is measured.
LONG_STEP = 10.0
TINY_RATE = 1e-9
# Images that are held out when a single step is trained.
FEW = 2
# The most bytes of random samples to train on, and how many samples are held out.
MOST_BYTES, HELD_OUT = 1 << 26, 256


def measure(workload: Workload, sizes: Sizes, copies: int) -> Measurement:
    """Measure a workload alone, and as many copies of it at once as the cores have room for.

    Torch must have been imported but not used, because processes are forked.

    Args:
        sizes: those of one of its runs; measured epochs are not longer than this run's.
        copies: how many have room; with one there are no neighbours to measure.

    Raises:
        ValueError: it cannot be trained.
    """
    images = max(1, MOST_BYTES // int(np.prod(workload.shape)))
    most_steps = max(1, min(sizes.train, images) // _batch(workload))
    folder: str | Path
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        if workload.run.is_estimator:
            held_out = min(HELD_OUT, sizes.held_out)
            fitted = _trained(workload, folder, 1, 1, held_out)[0]
            return _measurement(1, fitted, fitted, [], held_out, _weights(folder))
        first = _trained(workload, folder, steps=1, epochs=1, held_out=FEW)[0]
        seconds = first["training_seconds"]
        steps = max(1, min(most_steps, round(EPOCH_SECONDS / seconds)))
        # The first step takes about twice as long as the others.
        epochs = min(MOST_EPOCHS, 2 + round(SECONDS / (steps * seconds / 2)))
        held_out = FEW if seconds > LONG_STEP else min(HELD_OUT, sizes.held_out)
        alone = first
        if seconds <= LONG_STEP:
            alone = _trained(workload, folder, steps, epochs, held_out)[0]
        busy = _trained(workload, folder, steps, epochs, held_out, copies) if copies > 1 else []
        weights = _weights(folder)
    return _measurement(steps, first, alone, busy, held_out, weights)


def _batch(workload: Workload) -> int:
    """Return the samples in a step; an estimator is fitted to all in a single one."""
    return workload.run.batch_size or workload.run.train_size  # type: ignore[return-value]


def _weights(folder: Path) -> int:
    """Return the size of the weights of a measured run, in bytes."""
    return (folder / "copy_0" / "output" / "weights.pt").stat().st_size


def _measurement(
    steps: int,
    first: dict[str, Any],
    alone: dict[str, Any],
    busy: list[dict[str, Any]],
    held_out: int,
    weights: int,
) -> Measurement:
    """Return the Measurement that follows from the metrics of train_and_score().

    Args:
        steps: steps per epoch.
        first: metrics of a run of one step, with FEW images held out.
        alone: metrics of a run with epochs of `steps` steps.
        busy: metrics of copies of it that ran at once.
        held_out: how many images were held out of `alone`.
        weights: bytes of the model's weights.
    """
    step = _step_seconds(alone, steps)
    steps_of_busy = [_step_seconds(metrics, steps) for metrics in busy]
    slower = statistics.mean(steps_of_busy) / step if busy else 1.0
    epochs = len(alone["epochs"])
    other = [_other_seconds(metrics) for metrics in (first, alone)]
    save = max(0.0, other[1] - other[0]) / (epochs - 1) if epochs > 1 else 0.0
    evaluations = first["evaluation_seconds"], alone["evaluation_seconds"]
    per_image = evaluations[1] / held_out
    if held_out > FEW:
        per_image = max(0.0, evaluations[1] - evaluations[0]) / (held_out - FEW)
    return Measurement(
        step_seconds=step,
        slower=max(1.0, slower),
        warm_up_seconds=max(0.0, alone["epochs"][0]["seconds"] - steps * step),
        fixed_seconds=max(0.0, other[1] - epochs * save),
        epoch_seconds=save,
        evaluation_seconds=max(0.0, evaluations[1] - held_out * per_image),
        image_seconds=per_image,
        memory_bytes=max(metrics["peak_memory_bytes"] for metrics in (first, alone, *busy)),
        weights_bytes=weights,
        end_seconds=alone["end_seconds"],
        contended=alone["cores"]["contended"],
    )


def _step_seconds(metrics: dict[str, Any], steps: int) -> float:
    """Return the seconds per step, without the first epoch if there are others."""
    epochs = metrics["epochs"][1:] or metrics["epochs"]
    return statistics.mean(epoch["seconds"] for epoch in epochs) / steps


def _other_seconds(metrics: dict[str, Any]) -> float:
    """Return the seconds in which a run was neither trained nor scored."""
    seconds = sum(session["ended"] - session["started"] for session in metrics["sessions"])
    return seconds - metrics["training_seconds"] - metrics["evaluation_seconds"]


def _trained(
    workload: Workload, folder: Path, steps: int, epochs: int, held_out: int, copies: int = 1
) -> list[dict[str, Any]]:
    """Train copies of a workload at once; return their metrics of train_and_score()."""
    train = steps * _batch(workload)
    data = folder / f"data_{train}_{held_out}"
    if not data.exists():
        _write_samples(data, workload, train + held_out, train)
    run = dataclasses.replace(workload.run, epochs=epochs)
    if not run.is_estimator:
        assert run.optimizer is not None
        # The learning rate is so small that random data cannot make the loss diverge.
        options = run.optimizer.options | {"lr": TINY_RATE}
        run = dataclasses.replace(
            run, optimizer=dataclasses.replace(run.optimizer, options=options)
        )
    children = [_Child.start(run, data, folder / f"copy_{copy}") for copy in range(copies)]
    return [child.result() for child in children]


def _write_samples(folder: Path, sizes: Sizes | Workload, count: int, train: int) -> None:
    """Write random samples of a shape, or the examples repeated.

    Args:
        sizes: has shape, task and examples.
    """
    random = np.random.default_rng(0)
    shape, is_image = (count, *sizes.shape), len(sizes.shape) == 3
    targets, names = sizes.task.stored_examples(count, sizes.shape), sizes.task.class_names()
    pixels = random.integers(0, 256, shape, np.uint8)
    inputs = pixels if is_image else pixels.astype(np.float32)
    if sizes.examples:
        kind = np.int32 if sizes.vocabulary else np.float32
        inputs = np.resize(np.array(sizes.examples, kind), shape)
    samples = storage.Samples(shape, [inputs], targets, names, train, dtype=inputs.dtype)
    samples.own_task = sizes.task
    samples.scale = not sizes.examples
    samples.vocabulary = sizes.vocabulary and Vocabulary(tokens.OWN, sizes.vocabulary)  # type: ignore[assignment]
    storage.write(folder, samples)


@dataclass(frozen=True)
class _Child:
    """A process that trains like a job of the workflow."""

    process: ForkProcess
    answer: Connection

    @classmethod
    def start(cls, run: Run, data: Path, folder: Path) -> _Child:
        context = get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_train, args=(run, data, folder, sender))
        process.start()
        sender.close()
        return cls(process, receiver)

    def result(self) -> dict[str, Any]:
        try:
            metrics, problem = self.answer.recv()
        except EOFError:
            self.process.join()
            metrics, problem = None, f"it ended with status {self.process.exitcode}"
        self.process.join()
        if problem or metrics["diverged"]:
            raise ValueError(problem or "its loss is not finite from the start")
        return metrics | {"end_seconds": time.time() - metrics["ended"]}


def _train(run: Run, data: Path, folder: Path, sender: Connection) -> None:
    from allcores_study.training.experiment import train_and_score
    from allcores_study.training.run_request import RunRequest

    lifetime.die_with_parent()
    lifetime.adopt_orphans()
    # Else the run's start-up would be counted from the start of the planner's client.
    os.environ.pop(lifetime.CLIENT, None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # its parent ends, and this process with it
    try:
        with _silence():
            request = RunRequest(
                run=run,
                configured=run,
                data_folder=data,
                checkpoint_folder=folder / "checkpoints",
                output=folder / "output",
            )
            metrics = train_and_score(request)
        sender.send((metrics, None))
    except KeyboardInterrupt:
        sender.send((None, "it was stopped"))
    except Exception as error:
        sender.send((None, str(error) or traceback.format_exc()))
    lifetime.end_descendants()
    os._exit(0)  # there is nothing more to do, and torch's own clean-up takes time


@contextmanager
def _silence() -> Iterator[None]:
    """Discard all output of this process and its workers."""
    sys.stdout.flush()
    originals = [os.dup(stream) for stream in (1, 2)]
    with Path(os.devnull).open("w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    try:
        yield
    finally:
        sys.stdout.flush()
        for stream, original in zip((1, 2), originals, strict=True):
            os.dup2(original, stream)
            os.close(original)


def calibrate(run: Run, sizes: Sizes, available: int, file: str | Path) -> None:
    """Measure the recipe of a run on random images, see recipes.calibrate()."""
    folder: str | Path
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        _write_samples(folder / "data", sizes, 2, 1)
        try:
            with _silence():
                recipes.calibrate(run, folder / "data", available, file)
        except RankFailedError as error:
            raise ValueError(f"{run.model.label}: {error}") from None
