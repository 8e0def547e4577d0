"""Cells: kinds of training steps. What is measured of one holds for all runs of it. No torch."""

import dataclasses
import functools
import importlib.metadata
import json
from dataclasses import dataclass
from pathlib import Path

from allcores.machine import cores
from allcores.study import fingerprint, registry
from allcores.study.run import AUTO, Choice, Run, digest


@dataclass(frozen=True)
class Sizes:
    """How much data a run has.

    Attributes:
        shape: of a sample, (C, H, W) of an image.
        classes: how many there are; None: the targets are numbers.
        train, held_out: numbers of images that it trains on and is scored on.
    """

    shape: tuple
    classes: int
    train: int
    held_out: int

    @classmethod
    def of(cls, run, data_folder):
        """Those of a Run, from the prepared dataset, or else what is known before; None: nothing.

        Args:
            data_folder: of the prepared dataset.
        """
        try:
            info = json.loads((Path(data_folder) / "dataset.json").read_text())
            count, *shape = info["shape"]
            classes, train = info["classes"] and len(info["classes"]), info["train"]
            is_ordered = "times.npy" in info["sha256"]
            test = count - train
        except (OSError, ValueError, KeyError, TypeError):  # not prepared yet
            known = registry.metadata(run.dataset)
            if known is None:
                return None
            shape, classes, train, test = known.shape, known.classes, known.train, known.test
            is_ordered = known.times is not None
        held_out = test
        for folds, fold in ((run.folds, run.fold), (run.inner_folds, run.inner_fold)):
            if folds is not None:
                held_out = round(train / (folds + is_ordered))
                train = held_out * (fold + 1) if is_ordered else train - held_out
        train = min(train, run.train_size or train)
        return cls(tuple(shape), classes, round(train * (1 - (run.validation or 0))), held_out)


@dataclass(frozen=True)
class Cell:
    """All runs whose steps take as long.

    Attributes:
        run: one of them, without what decides only which samples it sees, how many, in how many
            epochs and under which schedule.
        shape, classes: as of Sizes.
    """

    run: Run
    shape: tuple
    classes: int

    @classmethod
    def of(cls, run, sizes):
        """That of a Run, whose recipe is filled in."""
        splits = ("folds", "fold", "inner_folds", "inner_fold", "train_size", "validation")
        nothing = dict.fromkeys((*splits, "patience", "stop_after")) | {"seed": 0, "epochs": 1}
        kind = dataclasses.replace(
            run,
            **nothing,
            dataset=Choice("", "", {}),
            schedule=Choice("constant", "constant", {}),
            **{
                part: dataclasses.replace(getattr(run, part), label=getattr(run, part).name)
                for part in ("model", "strategy")
            },
        )
        return cls(kind, sizes.shape, sizes.classes)

    @functools.cached_property
    def key(self):
        """Equal for what is measured alike: the same kind of step, code, processor and torch."""
        assert AUTO not in self.run.recipe.values()
        told = [json.loads(self.run.to_json()), self.shape, self.classes]
        told += [fingerprint.of_run(self.run), cores.processor()]
        return digest(json.dumps([*told, importlib.metadata.version("torch")]))

    @property
    def title(self):
        run = self.run
        return f"{run.model.name} {run.strategy.name} {run.layout}, batches of {run.batch_size}"
