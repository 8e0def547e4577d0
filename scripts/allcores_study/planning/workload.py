"""What decides the speed and the duration of a run: its workload and its sizes. No torch."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allcores.machine import cores
from allcores_study.config import registry
from allcores_study.config.run import AUTO, Choice, Run, digest
from allcores_study.data import storage
from allcores_study.records import fingerprint
from allcores_study.tasks import base as tasks
from allcores_study.tasks.base import Task

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Sizes:
    """How much data a run has.

    Attributes:
        shape: of one sample; (C, H, W) for images.
        train, held_out: numbers of samples to train on and to score.
        examples, vocabulary: see data.metadata.Metadata.
    """

    shape: tuple[int, ...]
    task: Task
    train: int
    held_out: int
    examples: list[Any] | None = None
    vocabulary: int | None = None

    @classmethod
    def of(cls, run: Run, data_folder: str | Path) -> Sizes | None:
        """Return the sizes of a Run, from the prepared dataset or else its metadata; None: unknown.

        Args:
            data_folder: folder of the prepared dataset.
        """
        try:
            record = storage.read_record(data_folder)
            info = record.content
            count, *shape = info["shape"]
            task, train = tasks.named(info["task"], info["outputs"]), info["train"]
            is_ordered = "times.npy" in record.files
            test, examples = count - train, storage.examples(data_folder, info)
            vocabulary = storage.vocabulary_known(info)
        except (OSError, ValueError, KeyError, TypeError, IndexError):  # not prepared, or damaged
            metadata = registry.metadata(run.dataset)
            if metadata is None:
                return None
            shape, task, examples = metadata.shape, metadata.task, metadata.examples
            train, test = metadata.train, metadata.test
            is_ordered, vocabulary = metadata.times is not None, metadata.vocabulary
        held_out = train if run.final else test
        for folds, fold in ((run.folds, run.fold), (run.inner_folds, run.inner_fold)):
            if folds is not None:
                held_out = round(train / (folds + is_ordered))
                train = held_out * (fold + 1) if is_ordered else train - held_out  # type: ignore[operator]
        train = min(train, run.train_size or train)
        train = round(train * (1 - (run.validation or 0)))
        return cls(tuple(shape), task, train, held_out, examples, vocabulary)


@dataclass(frozen=True)
class Workload:
    """What decides the speed of a run: steps of runs with the same workload take equally long.

    Attributes:
        run: one such Run, without what only decides which samples it sees, how many, for how many
            epochs and under which schedule.
        shape, task, examples, vocabulary: see Sizes.
    """

    run: Run
    shape: tuple[int, ...]
    task: Task
    examples: list[Any] | None = dataclasses.field(default=None, compare=False)
    vocabulary: int | None = None

    @classmethod
    def of(cls, run: Run, sizes: Sizes) -> Workload:
        """Return the workload of a Run whose recipe is filled in."""
        splits = ("folds", "fold", "inner_folds", "inner_fold", "train_size", "validation")
        neutral: dict[str, Any]
        neutral = dict.fromkeys((*splits, "patience", "stop_after")) | {"seed": 0, "epochs": 1}
        if run.is_estimator:  # its speed depends on how many samples there are
            neutral["train_size"] = sizes.train
        plain_run = dataclasses.replace(
            run,
            **neutral,
            dataset=Choice("", "", {}),
            schedule=Choice("constant", "constant", {}),
            **{
                part: dataclasses.replace(getattr(run, part), label=getattr(run, part).name)
                for part in ("model", "strategy")
            },
        )
        return cls(plain_run, sizes.shape, sizes.task, sizes.examples, sizes.vocabulary)

    @functools.cached_property
    def key(self) -> str:
        """Equal for runs with the same workload, code, processor and version of torch."""
        assert AUTO not in self.run.recipe.values()
        settings = json.loads(self.run.to_json())
        if not self.run.is_estimator:  # whether there is momentum matters, not how much
            options = settings["optimizer"]["options"].items()
            settings["optimizer"]["options"] = {
                name: bool(value) if isinstance(value, float) else value for name, value in options
            }
        parts = [settings, self.shape, self.task.name, self.task.outputs]
        parts += [self.vocabulary] * bool(self.vocabulary)
        parts += [fingerprint.of_run(self.run), cores.processor()]
        return digest(json.dumps([*parts, importlib.metadata.version("torch")]))

    @property
    def title(self) -> str:
        run = self.run
        batches = "" if run.is_estimator else f", batches of {run.batch_size}"
        return f"{run.model.name} {run.strategy.name} {run.layout}{batches}"
