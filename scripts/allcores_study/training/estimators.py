"""Fit an estimator with scikit-learn's interface, such as a random forest, in place of the loop.

It gets the samples that a network gets, scaled by the same training part, and is scored by the same
code. https://scikit-learn.org/stable/developers/develop.html describes the interface.
"""

from __future__ import annotations

import math
import pickle
import time
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from allcores_study.config import registry
from allcores_study.data.batches import Batches, seed_all
from allcores_study.training import models
from allcores_study.training.progress import Progress, of_process

if TYPE_CHECKING:
    from allcores.loop.worker import Worker
    from allcores_study.config.run import Run
    from allcores_study.data.scaling import Scaling
    from allcores_study.data.storage import Dataset
    from allcores_study.tasks.base import Task
    from allcores_study.training.checkpoints import Checkpoints

# A smoke test has at least TRIED samples and TRIED_OF_EACH per class; if it fails, MORE times that.
TRIED, TRIED_OF_EACH, MORE = 200, 20, 10
CLASSIFIER, REGRESSOR = "classifier", "regressor"
# The kinds of scikit-learn's estimators that predict neither classes nor numbers.
OTHERS = ("clusterer", "outlier_detector", "density_estimator")


def kind(estimator: Any) -> str:
    """Return what an estimator is, by scikit-learn's tags.

    Without tags its methods decide: one with predict_proba() is a classifier.
    """
    tags = getattr(estimator, "__sklearn_tags__", None)
    told = tags().estimator_type if tags else getattr(estimator, "_estimator_type", None)
    if told in (CLASSIFIER, REGRESSOR, *OTHERS):
        return told
    return CLASSIFIER if hasattr(estimator, "predict_proba") else REGRESSOR


class FittedEstimator(torch.nn.Module):
    """An estimator as a module, scored and used for new samples as networks are.

    Its state_dict contains the pickled estimator.

    Args:
        estimator: has fit() and predict(); for classes and labels also predict_proba().
        outputs: number of outputs per sample.
    """

    def __init__(self, estimator: Any, outputs: int) -> None:
        super().__init__()
        self.estimator, self.outputs, self.has_labels = estimator, outputs, False
        self.gives_probabilities = kind(estimator) == CLASSIFIER

    def fit(self, inputs: torch.Tensor, targets: np.ndarray) -> None:
        """Train on inputs, (n, ...) float32, and scaled targets, (n,) or (n, outputs)."""
        self.has_labels = self.gives_probabilities and targets.ndim == 2
        if self.has_labels:
            targets = targets.astype(np.int64)
        with _threads():
            self.estimator.fit(inputs.flatten(1).numpy(), targets)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the estimator predicts for inputs, (n, outputs).

        These are probabilities of classes or labels as it gives them, or numbers, float32.
        """
        with _threads():
            return self._predicted(inputs.flatten(1).numpy())

    def _predicted(self, rows: np.ndarray) -> torch.Tensor:
        if not self.gives_probabilities:
            found = np.asarray(self.estimator.predict(rows), np.float32)
            found = found[:, None] if found.ndim == 1 else found
        elif self.has_labels:
            found = self._of_labels(rows)
        else:
            found = np.asarray(self.estimator.predict_proba(rows))
            if len(classes := self._classes()) < self.outputs:  # a training part may lack one
                whole = np.zeros((len(rows), self.outputs), found.dtype)
                whole[:, classes] = found
                found = whole
        if found.shape != (len(rows), self.outputs):
            raise ValueError(
                f"it predicts {found.shape} for {len(rows)} samples; "
                f"expected {(len(rows), self.outputs)}"
            )
        return torch.from_numpy(np.ascontiguousarray(found))

    def _classes(self) -> np.ndarray | range:
        """Return the numbers of the classes that it was fitted to; without `classes_`, all."""
        return getattr(self.estimator, "classes_", range(self.outputs))

    def _of_labels(self, rows: np.ndarray) -> np.ndarray:
        """Return the probability that each label holds, (n, outputs)."""
        chances = self.estimator.predict_proba(rows)
        if not isinstance(chances, list):
            return chances
        # Each label has a column for "no" and one for "yes", if it was trained on samples of both.
        pairs = zip(chances, self.estimator.classes_, strict=True)
        return np.stack([of_label @ values for of_label, values in pairs], axis=1)

    def get_extra_state(self) -> torch.Tensor:
        content = zlib.compress(pickle.dumps((self.estimator, self.has_labels)), level=1)
        return torch.frombuffer(bytearray(content), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor) -> None:
        content = zlib.decompress(state.numpy().tobytes())
        self.estimator, self.has_labels = pickle.loads(content)


def _threads() -> AbstractContextManager[Any]:
    """Return a context in which an estimator with several jobs uses threads of this process.

    joblib's processes would have to be ended, and their shared memory be deleted, with the run.
    """
    import joblib

    return joblib.parallel_config(backend="threading")


def build(run: Run, outputs: int) -> FittedEstimator:
    """Return the FittedEstimator of a Run, not fitted yet.

    `n_jobs` is set to its threads and `random_state` to its seed, also in parts of a pipeline. One
    thread is what None means, so it is not set: LogisticRegression warns about `n_jobs`.
    """
    estimator = registry.model(run.model.name).load()(**run.model.options)
    threads = run.threads_per_worker
    given = {"n_jobs": threads if threads > 1 else None, "random_state": run.seed}
    params = estimator.get_params() if hasattr(estimator, "get_params") else {}
    for name, value in params.items():
        key = name.rpartition("__")[2]
        if key in given and value is None:
            estimator.set_params(**{name: given[key]})
    return FittedEstimator(estimator, outputs)


def train(
    run: Run,
    dataset: Dataset,
    scaling: Scaling,
    samples: np.ndarray,
    validation: np.ndarray,
    checkpoints: Checkpoints,
    worker: Worker,
) -> None:
    """Fit as the only worker of a run; the arguments are those of loop.train()."""
    if checkpoints.latest():
        return
    world, clock = worker.world, worker.world.clock
    seed_all(run.seed)  # for functions that draw the numbers with which they build an estimator
    model: Any = models.build(run, dataset.shape, dataset.task.outputs)
    progress = Progress(run, len(samples), 1, world)
    clock.enter("data")
    inputs = Batches(dataset.inputs, scaling.mean, scaling.std).plain(samples)
    targets = dataset.task.scaled(dataset.targets, scaling)[samples]
    progress.batch()
    clock.enter("compute")
    seed_all(run.seed)  # for estimators that draw numbers without a random_state
    model.fit(inputs, targets)
    clock.stop()
    progress.close()
    epochs: list[dict[str, Any]] = [{"loss": None, "lr": None, "phases": clock.take()}]
    checkpoints.save_weights(epochs, model.state_dict())
    checkpoints.save(
        {
            "epochs": epochs,
            "start_up_seconds": progress.start_up,
            "threads": run.threads_per_worker,
            "parameters": None,
        }
    )
    of_process.epoch(1, None, is_last=True)
    print(f"fitted to {len(samples):,} samples in {sum(epochs[0]['phases'].values()):.2f} s")


def tried_out(
    run: Run, shape: Sequence[int], task: Task, vocabulary: int | None
) -> dict[str, float]:
    """Fit a new estimator to a few samples and return what a sample takes.

    Args:
        run, shape, task, vocabulary: as in trials.tried_out().

    Raises:
        ValueError: it does not predict what the task needs.
    """
    model = build(run, task.outputs)
    name, is_for_classes = type(model.estimator).__name__, model.gives_probabilities
    if (found := kind(model.estimator)) in OTHERS:
        raise ValueError(
            f"{name} is a {found.replace('_', ' ')}; expected a classifier or a regressor"
        )
    targets = registry.tasks()[task.name].constants["TARGETS"]
    if is_for_classes == (targets == "numbers"):
        found = "classes" if is_for_classes else "numbers"
        raise ValueError(f"{name} predicts {found}; the targets are {targets}")
    if task.target != "fixed":
        raise ValueError(f"{name} does not predict {targets}; expected a network")
    if vocabulary:
        raise ValueError(f"{name} takes no sequences of tokens; expected a network")
    count = max(TRIED, TRIED_OF_EACH * task.outputs)
    try:
        return _fitted(model, shape, task, count)
    except ValueError:  # for instance, more neighbours than samples
        return _fitted(build(run, task.outputs), shape, task, MORE * count)


def _fitted(
    model: FittedEstimator, shape: Sequence[int], task: Task, count: int
) -> dict[str, float]:
    """Return what a sample takes when a model is fitted to this many."""
    random = np.random.default_rng(0)
    inputs = random.standard_normal((count, *shape), np.float32)
    began = time.perf_counter()
    model.fit(torch.from_numpy(inputs), task.examples(count, shape).numpy())
    seconds = time.perf_counter() - began
    # Asked only now: some have it once they are fitted.
    if model.gives_probabilities and not hasattr(model.estimator, "predict_proba"):
        raise ValueError(
            f"{type(model.estimator).__name__} has no predict_proba() with these options; expected "
            "a classifier that gives probabilities, by which it is scored (SVC does with "
            "`probability: true`)"
        )
    scores = model(torch.from_numpy(inputs))
    if not torch.isfinite(scores).all():
        raise ValueError("it predicts numbers that are not finite")
    size = model.get_extra_state().nbytes
    # It holds all samples at once, as float32.
    return {
        "seconds": seconds / count,
        "activation_bytes": 4 * math.prod(shape),
        "weight_bytes": size,
    }
