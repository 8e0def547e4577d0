"""The request to train a run, and the file of a job: a list of them as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores.files import read_json, write_json
from allcores.machine import leases
from allcores_study.config.candidates import Selection
from allcores_study.config.run import Conditions, Run

if TYPE_CHECKING:
    from collections.abc import Sequence


SECONDS = ("timeout", "save_every")  # fields that may be infinite


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A run to train and score.

    Attributes:
        data_folder: the prepared dataset.
        checkpoint_folder: folder of the checkpoints, which are deleted once the results are
            written.
        output: folder for the results.
        fold_file: the fold of each sample, from folds.write(); None: assign folds here.
        selection: of a chosen run: what to choose before it is trained; `run` stands in.
        metrics: of an inner run: the metrics by which candidates are compared. It leaves
            no other file than metrics.json.
        again: of a chosen run: train it even if its results are those of what is chosen.
        conditions: what is scored and how it is measured.
        cores_of_call: number of cores onto which Snakemake packs the runs of this invocation; None:
            the cores that this process may use.
        oversubscribe: whether it may have more processes than cores.
        pinning: keep each process on its own cores, as long as the machine has free ones.
        timeout: seconds without any progress after which the run is ended.
        save_every: seconds after which a checkpoint is written in the middle of an epoch.
        ends_process: whether this process ends with the run: signals are ignored once its results
            are written.
    """

    run: Run
    data_folder: Path
    checkpoint_folder: Path
    output: Path
    fold_file: Path | None = None
    selection: Selection | None = None
    metrics: tuple[str, ...] = ()
    again: bool = False
    conditions: Conditions = field(default_factory=Conditions)
    cores_of_call: int | None = None
    oversubscribe: bool = False
    pinning: bool = True
    timeout: float = math.inf
    save_every: float = math.inf
    ends_process: bool = False

    def leased(self) -> AbstractContextManager[list[int] | None]:
        """Return a context with the cores on this node that the run keeps to, or None."""
        return leases.leased(self.run.cores_on_node) if self.pinning else nullcontext()

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RunRequest:
        """Return the request that write() has written."""
        selection = values["selection"]
        if selection:
            outer = {label: Run.from_json(text) for label, text in selection["outer"].items()}
            metrics = tuple(selection["metrics"])
            selection = Selection(**selection | {"outer": outer, "metrics": metrics})
        paths = ("data_folder", "checkpoint_folder", "output", "fold_file")
        return cls(
            **values
            | {name: values[name] and Path(values[name]) for name in paths}
            | {name: math.inf if values[name] is None else values[name] for name in SECONDS}
            | {"run": Run.from_json(values["run"]), "metrics": tuple(values["metrics"])}
            | {"selection": selection, "conditions": Conditions(**values["conditions"])}
        )


def write(file: str | Path, results: str | Path, requests: Sequence[RunRequest]) -> None:
    """Write the file of a job.

    Args:
        results: folder of the config's results.
        requests: the runs that the job trains.
    """
    names = [one.name for one in dataclasses.fields(RunRequest)]
    runs = [{name: getattr(request, name) for name in names} for request in requests]
    for run in runs:  # JSON has no infinity
        run |= {name: None for name in SECONDS if run[name] == math.inf}
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {"results": str(results), "runs": json.loads(json.dumps(runs, default=_json))})


def read(file: str | Path) -> tuple[str, list[RunRequest]]:
    """Return (folder of the config's results, requests) of a job.

    Raises:
        ValueError: the file is damaged.
        OSError: it cannot be read.
    """
    job = read_json(file)
    return job["results"], [RunRequest.from_json(values) for values in job["runs"]]


def _json(value: Run | Path | Conditions | Selection) -> Any:
    if isinstance(value, Run):
        return value.to_json()
    return str(value) if isinstance(value, Path) else vars(value)
