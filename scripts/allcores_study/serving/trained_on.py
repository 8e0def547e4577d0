"""Which new samples are among those that a run was trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from allcores_study.data import folds, storage
from allcores_study.data.folds import Assignable
from allcores_study.data.storage import Dataset
from allcores_study.records import run_files
from allcores_study.serving.predictor import Predictor

CHUNK = 256  # samples of the dataset in memory


@dataclass
class Known:
    """The samples that some runs were trained on, or chose their epochs by.

    Attributes:
        predictors: of the runs.
        folder: of their prepared dataset; None: it is no longer what they were trained on.
        dataset: it.
        new: digests of the new samples so far.
    """

    predictors: list[Predictor]
    folder: Path | None = None
    dataset: Dataset | None = None
    new: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, predictors: list[Predictor]) -> Known:
        first = predictors[0]
        results = run_files.results_of(first.folder)
        folder = (results or first.folder) / "data"
        folder = folder / first.run.dataset.label if results else folder
        try:
            dataset = storage.open_dataset(folder)
        except (ValueError, OSError):
            return cls(predictors)
        if dataset.record.files["inputs.npy"] != first.data:
            return cls(predictors)
        return cls(predictors, folder, dataset)

    def add(self, inputs: np.ndarray) -> None:
        """Look at some more new samples, as a Predictor takes them."""
        if self.dataset is None:
            return
        if inputs.dtype == object:
            assert self.dataset.vocabulary is not None  # texts
            inputs = self.dataset.vocabulary.numbers(inputs, self.dataset.shape[0])
        self.new += map(_digest, inputs)

    def notes(self) -> Iterator[str]:
        """Yield a sentence if new samples are among those that a run was trained on."""
        if self.dataset is None or self.folder is None:
            return
        samples = [_trained(predictor, self.dataset) for predictor in self.predictors]
        trained = np.unique(np.concatenate(samples))
        new, found = set(self.new), set()
        for start in range(0, len(trained), CHUNK):
            # Mapped again each time, since what was read of a mapped file counts as memory.
            inputs = np.load(self.folder / "inputs.npy", mmap_mode="r")
            found |= new.intersection(map(_digest, inputs[trained[start : start + CHUNK]]))
        if found:
            yield (
                f"{sum(digest in found for digest in self.new):,} of {len(self.new):,} samples are "
                f"among those that {'the' if len(self.predictors) == 1 else 'a'} run was trained "
                "on: their predictions show nothing about new samples"
            )


def _digest(sample: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(sample).tobytes(), digest_size=16).digest()


def _trained(predictor: Predictor, dataset: Dataset) -> np.ndarray:
    """Return the positions of the samples that a run was trained on, (n,)."""
    run, ordered = predictor.run, dataset.times is not None
    fold_of = folds.of_run(run, Assignable.of(dataset))
    trained, _ = folds.split(
        *(dataset.facts, fold_of, run.held_out_fold, run.train_size, run.seed),
        *(ordered, bool(run.final)),
    )
    return trained
