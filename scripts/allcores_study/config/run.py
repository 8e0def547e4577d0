"""Run: everything that decides the final weights of one training."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any

# The path of a run's results below runs/, unique within a config; the workflow's wildcards.
PATH = "{dataset}/{model}/{schedule}/{strategy}/{layout}/{split}/n{size}_seed{seed}"
# Optional keys of a model's entry with a number or a truth value.
ADDITIONS = ("clip_norm", "ema", "validation", "patience")
# Fields that are left out of a run's JSON if they are None: most runs have none of them.
OPTIONAL = (
    *("final", "inner_folds", "inner_fold", "augmentation", "stacked"),
    *ADDITIONS,
)


@dataclass(frozen=True)
class Entry:
    """A component as a config names it: its label there, its name and its options."""

    label: str
    name: str
    options: dict[str, Any]

    @property
    def digest(self) -> str:
        return digest(self.to_json())

    def to_json(self) -> str:
        return _canonical(self)

    @classmethod
    def from_json(cls, text: str) -> Entry:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Run:
    """One training: one combination of a study's grid.

    What is scored and how it is timed is in Conditions.

    Attributes:
        optimizer: None: the model is an estimator with scikit-learn's interface, which trains
            itself.
        batch_size: samples per step over all workers together; None: for an estimator.
        loss: its name is torch's, or an import path.
        crop, flip: augmentation, see batches.Batches.
        precision: of forward and backward: "fp32", or "bf16" under torch.autocast; weights,
            gradients and scores are always fp32.
        memory_format: how images and weights lie in memory: "contiguous" or "channels_last".
        folds, fold: number of folds and index of the test fold; both None: the dataset's own test
            set is held out, or nothing if it is `final`.
        train_size: number of samples of the training set to train on; None: all.
        workers: number of processes that train, on all nodes together.
        servers: number of server processes beside the workers.
        nodes: number of machines; workers are divided equally among them.
        inner_folds, inner_fold: number of folds of the training set, and index of the one that is
            held out instead, to choose between candidates; both None: there are none.
        augmentation: the user's own, by import path, see data/augmentation.py; None: there is none.
        clip_norm: largest Euclidean norm of a gradient; None: any.
        ema: decay of the moving average of the weights, which is shipped; None: no such average.
        validation: part of the training samples, in 0..1, that is held back; the weights after the
            epoch with the smallest loss on it are shipped; None: the final weights.
        patience: number of epochs without a smaller validation loss after which training ends;
            None: all epochs are trained.
        final: True: it is trained on all samples but those of the dataset's own test set, as the
            model to use, and scored on what it was trained on; None: it is not.
        stacked: False: it is not trained in a stack of networks; None: it is, if it can be.
        seed: decides folds, initial weights, order of samples and augmentation.
    """

    dataset: Entry
    model: Entry
    optimizer: Entry | None
    loss: Entry
    schedule: Entry
    strategy: Entry
    batch_size: int | None
    epochs: int
    crop: int
    flip: bool
    precision: str
    memory_format: str
    folds: int | None
    fold: int | None
    train_size: int | None
    workers: int
    servers: int
    threads_per_worker: int
    seed: int
    nodes: int = 1
    inner_folds: int | None = None
    inner_fold: int | None = None
    augmentation: Entry | None = None
    clip_norm: float | None = None
    ema: float | None = None
    validation: float | None = None
    patience: int | None = None
    final: bool | None = None
    stacked: bool | None = None

    @property
    def processes(self) -> int:
        return self.workers + self.servers

    @property
    def workers_on_node(self) -> int:
        return self.workers // self.nodes

    @property
    def cores(self) -> int:
        """Processes times threads: the number of cores that the run needs at least."""
        return self.processes * self.threads_per_worker

    @property
    def cores_on_node(self) -> int:
        """The cores on the node with most processes; servers are spread over the nodes."""
        return -(-self.processes // self.nodes) * self.threads_per_worker

    @property
    def is_estimator(self) -> bool:
        """Whether its model is an estimator with scikit-learn's interface, not a network."""
        return self.optimizer is None

    @property
    def may_be_stacked(self) -> bool:
        """Whether it is trained in a stack if its network can be: see registry.may_be_stacked()."""
        return self.processes == 1 and self.stacked is None and not self.is_estimator

    @property
    def layout(self) -> str:
        """Workers, threads and nodes, for its path."""
        return f"w{self.workers}t{self.threads_per_worker}" + f"_nodes{self.nodes}" * (
            self.nodes > 1
        )

    @property
    def wildcards(self) -> dict[str, str | int]:
        """The values that PATH is filled with."""
        return {
            "dataset": self.dataset.label,
            "model": self.model.label,
            "schedule": self.schedule.label,
            "strategy": self.strategy.label,
            "layout": self.layout,
            "split": self.split,
            "size": "all" if self.train_size is None else self.train_size,
            "seed": self.seed,
        }

    @property
    def split(self) -> str:
        """What is held out, for its path."""
        nothing = "all" if self.final else "test"
        outer = nothing if self.folds is None else f"fold{self.fold}of{self.folds}"
        inner = f"_inner{self.inner_fold}of{self.inner_folds}" if self.inner_folds else ""
        return outer + inner

    @property
    def scored_on(self) -> str:
        """What it is scored on, in words."""
        return "training samples" if self.final and not self.inner_folds else "held-out samples"

    @property
    def folds_file(self) -> str | None:
        """The file with the fold of each sample, in its dataset's folder; None: it needs none."""
        if self.folds is None and not self.inner_folds:
            return None
        return folds_file(self.folds or 0, self.seed, self.inner_folds)

    @property
    def held_out_fold(self) -> int | None:
        """The fold that it is scored on; None: the dataset's own test set."""
        return self.inner_fold if self.inner_folds else self.fold

    @functools.cached_property
    def path(self) -> str:
        return PATH.format(**self.wildcards)

    @property
    def digest(self) -> str:
        return digest(self.to_json())

    def to_json(self) -> str:
        """Return one canonical line: equal runs give equal lines."""
        return self._json

    @functools.cached_property
    def _json(self) -> str:
        return _canonical(self)

    @classmethod
    def from_json(cls, text: str) -> Run:
        values = json.loads(text)
        entries = {
            name: Entry(**value) for name, value in values.items() if isinstance(value, dict)
        }
        return cls(**values | entries)


def _canonical(value: Entry | Run) -> str:
    """Return a dataclass as one line; vars() is faster than dataclasses.asdict()."""
    fields = {field.name for field in dataclasses.fields(value)}
    values = {key: entry for key, entry in vars(value).items() if key in fields}
    for key in OPTIONAL:
        if values.get(key, ...) is None:
            del values[key]
    return json.dumps(values, default=vars, sort_keys=True, separators=(",", ":"))


def folds_file(folds: int, seed: int, inner_folds: int | None) -> str:
    """Return the name of the file with the fold of each sample; inner_folds may be None."""
    return f"{folds}folds_seed{seed}{f'_inner{inner_folds}' if inner_folds else ''}.json"


def digest(text: str) -> str:
    """Return the first eight hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Conditions:
    """How a run is scored and timed, which does not change its weights.

    Attributes:
        curves: whether the weights after every epoch are scored, not only the last ones.
        exclusive: whether nothing else runs on the machine at the same time.
    """

    curves: bool = False
    exclusive: bool = False

    def are_met_by(self, recorded: dict[str, bool]) -> bool:
        """Return whether the results of a run suffice: asking for less retrains nothing.

        Args:
            recorded: the Conditions of the results.
        """
        return self.curves <= recorded["curves"] and self.exclusive <= recorded["exclusive"]
