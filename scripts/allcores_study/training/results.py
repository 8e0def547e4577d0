"""The files that a run writes: metrics, predictions and the trace of its CPU time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores.files import whole, write_text
from allcores_study.records.results_folder import RUN_FILES
from allcores_study.tasks import base as tasks
from allcores_study.training import checkpoints, evaluation

if TYPE_CHECKING:
    from allcores.machine.costs import Session
    from allcores.parallel.failures import DivergedError
    from allcores_study.config.run import Run


def metrics(
    run: Run,
    info: dict[str, Any],
    checkpoint: dict[str, Any],
    measures: dict[int, dict[str, Any]],
    diverged: DivergedError | None,
) -> dict[str, Any]:
    """Return the part of metrics.json that is about the training itself.

    Args:
        info: content of the dataset's dataset.json.
        checkpoint: the last one; empty if no epoch was completed.
        measures: epoch, counted from 0 -> the measures that evaluation.evaluate() returned.
        diverged: None: the run did not diverge.
    """
    done, task = checkpoint.get("epochs", []), tasks.named(info["task"], info["outputs"])
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
        "task": info["task"],
        "outputs": info["outputs"],
        "classes": info["classes"],
        "output_names": info["output_names"],
        "columns": info["columns"],
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

    def column(values: Any) -> pa.Array:
        if isinstance(values, tuple):
            ends, values = map(column, values)
            return pa.ListArray.from_arrays(ends, values)
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


def refuse_foreign(output: str | Path, checkpoint_folder: str | Path) -> None:
    """Check that a run's results neither overwrite a foreign file nor are among its checkpoints.

    Raises:
        ValueError: they would, or are.
    """
    output, checkpoint_folder = Path(output).resolve(), Path(checkpoint_folder).resolve()
    if output == checkpoint_folder or checkpoint_folder in output.parents:
        raise ValueError(
            "results cannot be among checkpoints, which are deleted: "
            f"{output} is in {checkpoint_folder}"
        )
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file; the results need a folder")
    if checkpoints.is_begun(checkpoint_folder):
        return  # an earlier session has checked; there may be incomplete results
    metrics = output / "metrics.json"
    if metrics.exists() and b'"checksum"' in metrics.read_bytes():
        return  # a run's, maybe damaged since
    names = [name for file in RUN_FILES for name in (file, f"{file}.part")]
    foreign = [output / name for name in names if (output / name).exists()]
    if foreign:
        raise ValueError(
            f"{foreign[0]} exists and is not a result of a run; expected a folder without it"
        )


def write_trace(path: str | Path, sessions: Iterable[Session]) -> None:
    """Write a CSV of session, seconds since 1970, CPU seconds used so far in all sessions."""
    lines, before = ["session,time,cpu_seconds\n"], 0.0
    for number, session in enumerate(sessions, start=1):
        lines += [f"{number},{time:.3f},{before + cpu:.3f}\n" for time, cpu in session.trace]
        before += session.cpu
    write_text(path, "".join(lines))


def _finite(value: float) -> float | None:
    """Return the value, or None if it is NaN or infinite, which JSON does not have."""
    return float(value) if math.isfinite(value) else None
