"""The content of metrics.json on the training itself, and the file of predictions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores.files import whole
from allcores_study.config import registry
from allcores_study.tasks import base as tasks
from allcores_study.training import evaluation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allcores_study.config.run import Run
    from allcores_study.data.facts import Facts
    from allcores_study.training.evaluation import DivergedError


def metrics(
    run: Run,
    facts: Facts,
    checkpoint: dict[str, Any],
    measures: dict[int, dict[str, Any]],
    diverged: DivergedError | None,
) -> dict[str, Any]:
    """Return the part of metrics.json that is about the training itself.

    Args:
        facts: of the dataset.
        checkpoint: the last one; empty if no epoch was completed.
        measures: epoch, counted from 0 -> the measures that evaluation.evaluate() returned.
        diverged: None: the run did not diverge.
    """
    done, task = checkpoint.get("epochs", []), tasks.named(facts.task, facts.outputs)
    has_validation = done and "validation_loss" in done[-1]
    epochs = [
        {
            "epoch": number + 1,
            **record,
            **({"validation_loss": _finite(record["validation_loss"])} if has_validation else {}),
            "seconds": sum(record["phases"].values()),
            **_of_epoch(measures.get(number), task),
        }
        for number, record in enumerate(done)
    ]
    no_measures = dict.fromkeys((*task.measures, "loss"))
    return {
        "settings": json.loads(run.to_json()),
        "task": facts.task,
        "outputs": facts.outputs,
        "names": facts.names,
        "class_values": facts.class_values,
        "columns": facts.columns,
        **(no_measures if diverged else measures[evaluation.shipped(done)]),
        "shipped_epoch": None if diverged else evaluation.shipped(done) + 1,
        "diverged": diverged and vars(diverged),
        "epochs": epochs,
        "training_seconds": sum(epoch["seconds"] for epoch in epochs),
        "start_up_seconds": checkpoint.get("start_up_seconds"),
        "parameters": checkpoint.get("parameters"),
    }


def _of_epoch(measures: dict[str, Any] | None, task: tasks.Task) -> dict[str, float | None]:
    """Return the held-out measures of an epoch; None for each, if it was not scored."""
    leading = task.measures[0]
    if measures is None:
        return {leading: None, "held_out_loss": None}
    values = {leading: measures[leading], "held_out_loss": measures["loss"]}
    return {name: value if value is None else _finite(value) for name, value in values.items()}


def scores(
    names: Iterable[str], true: np.ndarray, columns: dict[str, np.ndarray] | None
) -> dict[str, float | None]:
    """Return name -> value of each metric, None if it is undefined, for the record of an inner run.

    It leaves no predictions from which to compute them later.

    Args:
        true: the true values of the held-out samples, as stored.
        columns: of Task.predictions() for them; None: the run diverged.
    """
    if columns is None:
        return dict.fromkeys(names)
    # Masks in a row for each sample, as in predictions.parquet.
    true = true.reshape(columns["predicted"].shape)
    arguments = true, columns["predicted"], tasks.probabilities(columns)
    return {name: _finite(registry.metric(name).load()(*arguments)) for name in names}


def write_predictions(
    path: str | Path, samples: np.ndarray, targets: np.ndarray, columns: dict[str, Any]
) -> None:
    """Write the predictions for the held-out samples, atomically; metrics are computed from them.

    The columns are `sample`, its position in the dataset, `true`, and the given ones.

    Args:
        samples: positions in the dataset, (n,) int64.
        targets: of these samples, as stored.
        columns: see tasks.base.Task.predictions(); some have a list per sample.
    """
    import pyarrow as pa  # takes 0.2 s, unless a warm process has imported it
    from pyarrow import parquet

    def column(values: np.ndarray) -> pa.Array:
        # pa.array() would import pandas, 0.8 s of every run.
        buffer = pa.py_buffer(np.ascontiguousarray(values))
        kind = pa.from_numpy_dtype(values.dtype)
        array = pa.Array.from_buffers(kind, values.size, [None, buffer])
        if values.ndim == 1:
            return array
        return pa.FixedSizeListArray.from_arrays(array, math.prod(values.shape[1:]))

    columns = {"sample": samples, "true": targets, **columns}
    columns = {name: column(values) for name, values in columns.items()}
    with whole(path) as part:
        parquet.write_table(pa.Table.from_arrays([*columns.values()], [*columns]), part)


def _finite(value: float) -> float | None:
    """Return the value, or None if it is NaN or infinite, which JSON does not have."""
    return float(value) if math.isfinite(value) else None
