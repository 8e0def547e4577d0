"""Measure a cell: train it for a second, with the program that trains it for hours."""

import dataclasses
import os
import signal
import statistics
import sys
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from allcores.data import storage
from allcores.machine import lifetime
from allcores.parallel.failures import RankFailedError
from allcores.planning.prediction import Sample
from allcores.training import recipes

# Seconds of an epoch of a sample, unless a step lasts longer, and of all epochs. The first is
# warm-up.
EPOCH_SECONDS, SECONDS, MOST_EPOCHS = 0.5, 0.7, 9
# A first step that lasts longer, in seconds, is the only one that is measured.
LONG_STEP = 10.0
TINY_RATE = 1e-9
# Images that are held out when a single step is trained.
FEW = 2
# Bytes that the samples of a sample take at most, and how many images are held out.
MOST_BYTES, HELD_OUT = 1 << 26, 256


def measure(cell, sizes, copies):
    """Sample a cell alone, and as many copies of it at once as have room on the cores.

    Torch must have been imported, and not been used: processes are forked.

    Args:
        sizes: Sizes of one of its runs; a sample has no longer epochs.
        copies: how many have room; with one there is nothing to measure twice.

    Raises:
        ValueError: it cannot be trained.
    """
    images = max(1, MOST_BYTES // int(np.prod(cell.shape)))
    whole = max(1, min(sizes.train, images) // cell.run.batch_size)  # steps
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        first = _trained(cell, folder, steps=1, epochs=1, held_out=FEW)[0]
        took = first["training_seconds"]
        steps = max(1, min(whole, round(EPOCH_SECONDS / took)))
        # The first step takes about twice as long as the others.
        epochs = min(MOST_EPOCHS, 2 + round(SECONDS / (steps * took / 2)))
        held_out = FEW if took > LONG_STEP else min(HELD_OUT, sizes.held_out)
        alone = first
        if took <= LONG_STEP:
            alone = _trained(cell, folder, steps, epochs, held_out)[0]
        busy = _trained(cell, folder, steps, epochs, held_out, copies) if copies > 1 else []
        weights = (folder / "copy_0" / "output" / "weights.pt").stat().st_size
    return _sample(cell, steps, first, alone, busy, held_out, weights)


def _sample(cell, steps, first, alone, busy, held_out, weights):
    """The Sample that follows from what conduct() has returned.

    Args:
        steps: per epoch.
        first: of one step, of which two images were held out.
        alone: of epochs of `steps` steps.
        busy: of its copies that ran at once.
        weights: bytes of the model's weights.
    """
    step = _step_seconds(alone, steps)
    slower = statistics.mean(_step_seconds(one, steps) for one in busy) / step if busy else 1.0
    epochs = len(alone["epochs"])
    rests = [_rest(one) for one in (first, alone)]
    save = max(0.0, rests[1] - rests[0]) / (epochs - 1) if epochs > 1 else 0.0
    evaluations = first["evaluation_seconds"], alone["evaluation_seconds"]
    per_image = evaluations[1] / held_out
    if held_out > FEW:
        per_image = max(0.0, evaluations[1] - evaluations[0]) / (held_out - FEW)
    return Sample(
        step_seconds=step,
        slower=max(1.0, slower),
        warm_up_seconds=max(0.0, alone["epochs"][0]["seconds"] - steps * step),
        fixed_seconds=max(0.0, rests[1] - epochs * save),
        epoch_seconds=save,
        evaluation_seconds=max(0.0, evaluations[1] - held_out * per_image),
        image_seconds=per_image,
        memory_bytes=max(one["peak_memory_bytes"] for one in (first, alone, *busy)),
        phases={
            phase: seconds / sum(alone["epochs"][-1]["phases"].values())
            for phase, seconds in alone["epochs"][-1]["phases"].items()
        },
        weights_bytes=weights,
        end_seconds=alone["end_seconds"],
    )


def _step_seconds(metrics, steps):
    """Seconds per step, without the first epoch if there are others."""
    epochs = metrics["epochs"][1:] or metrics["epochs"]
    return statistics.mean(epoch["seconds"] for epoch in epochs) / steps


def _rest(metrics):
    """Seconds of a run in which it was neither trained nor scored."""
    lasted = sum(one["ended"] - one["started"] for one in metrics["sessions"])
    return lasted - metrics["training_seconds"] - metrics["evaluation_seconds"]


def _trained(cell, folder, steps, epochs, held_out, copies=1):
    """What conduct() returns for copies of a cell that are trained at once."""
    train = steps * cell.run.batch_size
    data = folder / f"data_{train}_{held_out}"
    if not data.exists():
        _write_samples(data, cell, train + held_out, train)
    # So small a learning rate that what is drawn at random cannot make it diverge.
    lr = {"lr": TINY_RATE}
    optimizer = dataclasses.replace(cell.run.optimizer, options=cell.run.optimizer.options | lr)
    run = dataclasses.replace(cell.run, epochs=epochs, optimizer=optimizer)
    children = [_Child.start(run, data, folder / f"copy_{copy}") for copy in range(copies)]
    return [child.result() for child in children]


def _write_samples(folder, cell, count, train):
    """Made-up images, or other samples of the cell's shape."""
    random = np.random.default_rng(0)
    shape, is_image = (count, *cell.shape), len(cell.shape) == 3
    targets = random.random(count) if cell.classes is None else np.arange(count) % cell.classes
    names = None if cell.classes is None else list(range(cell.classes))
    pixels = random.integers(0, 256, shape, np.uint8)
    made = pixels if is_image else pixels.astype(np.float32)
    storage.write(folder, storage.Samples(shape, [made], targets, names, train, dtype=made.dtype))


@dataclass(frozen=True)
class _Child:
    """A process that trains, as a job of the workflow would."""

    process: object
    answer: object

    @classmethod
    def start(cls, run, data, folder):
        context = get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_train, args=(run, data, folder, sender))
        process.start()
        sender.close()
        return cls(process, receiver)

    def result(self):
        try:
            metrics, problem = self.answer.recv()
        except EOFError:
            self.process.join()
            metrics, problem = None, f"it ended with status {self.process.exitcode}"
        self.process.join()
        if problem or metrics["diverged"]:
            raise ValueError(problem or "its loss is not finite from the beginning")
        return metrics | {"end_seconds": time.time() - metrics["ended"]}


def _train(run, data, folder, sender):
    from allcores.training.experiment import conduct

    lifetime.die_with_parent()
    lifetime.adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # its parent ends, and it with that
    try:
        with _silence():
            metrics = conduct(run, data, None, folder / "checkpoints", folder / "output")
        sender.send((metrics, None))
    except KeyboardInterrupt:
        sender.send((None, "it was stopped"))
    except Exception as error:
        sender.send((None, str(error) or traceback.format_exc()))
    lifetime.end_descendants()
    os._exit(0)  # nothing is left to be done, and torch takes its time


@contextmanager
def _silence():
    """What this process and its workers print goes nowhere; what they complain of, neither."""
    sys.stdout.flush()
    before = [os.dup(stream) for stream in (1, 2)]
    with Path(os.devnull).open("w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    try:
        yield
    finally:
        sys.stdout.flush()
        for stream, kept in zip((1, 2), before, strict=True):
            os.dup2(kept, stream)
            os.close(kept)


def calibrate(run, sizes, available, file):
    """Measure the recipe of a run, on made-up images: see recipes.calibrate()."""
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        _write_samples(folder / "data", sizes, 2, 1)
        try:
            with _silence():
                recipes.calibrate(run, folder / "data", available, file)
        except RankFailedError as error:
            raise ValueError(f"{run.model.label}: {error}") from None
