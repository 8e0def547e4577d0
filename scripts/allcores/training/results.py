"""The files that a run writes: its metrics and the trace of its CPU time."""

import json
import math
from pathlib import Path

import numpy as np

from allcores.files import write_text
from allcores.study import conditions
from allcores.training import checkpoints, evaluation
from allcores.training import metrics as scoring

# The files in a run's folder.
FILES = (
    "metrics.json",
    "conditions.json",
    "epochs.csv",
    "utilisation.csv",
    "predictions.parquet",
    "weights.pt",
)


def metrics(run, info, trained, scores, diverged):
    """The part of metrics.json that is about the training itself.

    Args:
        info: of the dataset, from dataset.json.
        trained: the last checkpoint; empty if no epoch was completed.
        scores: epoch, counted from 0 -> what evaluation.evaluate returned.
        diverged: failures.DivergedError; None: the run did not diverge.
    """
    done = trained.get("epochs", [])
    judged = done and "validation_loss" in done[-1]
    epochs = [
        {
            "epoch": number + 1,
            **record,
            **({"validation_loss": _finite(record["validation_loss"])} if judged else {}),
            "seconds": sum(record["phases"].values()),
            **_of_epoch(scores.get(number), info["classes"]),
        }
        for number, record in enumerate(done)
    ]
    measured = scoring.OF_NUMBERS if info["classes"] is None else scoring.OF_CLASSES
    nothing = dict.fromkeys((*measured, "loss"))
    return {
        "settings": json.loads(run.to_json()),
        "classes": info["classes"],
        "columns": info["columns"],
        **(nothing if diverged else scores[evaluation.shipped(done)]),
        "shipped_epoch": None if diverged else evaluation.shipped(done) + 1,
        "diverged": diverged and vars(diverged),
        "epochs": epochs,
        "training_seconds": sum(epoch["seconds"] for epoch in epochs),
        "start_up_seconds": trained.get("start_up_seconds"),
    }


def _of_epoch(measures, classes):
    """What is told of each epoch; nothing, if it was not scored."""
    leading = "r2" if classes is None else "accuracy"
    if measures is None:
        return {leading: None, "held_out_loss": None}
    return {leading: measures[leading], "held_out_loss": _finite(measures["loss"])}


def write_predictions(path, samples, targets, scores, scaling):
    """Write what a network says of the held-out samples, atomically, for any metric to be computed.

    Columns: sample, its position in the dataset; true and predicted: numbers of classes, int64, or
    numbers, float64; of classes also scores, a list of float32 for each sample, one per class.

    Args:
        samples: positions in the dataset, (n,) int64.
        targets: theirs, (n,) int64 or float64.
        scores: (n, outputs) float32; None: the run diverged, and there are no rows.
        scaling: Scaling.
    """
    import pyarrow as pa  # takes a fifth of a second, of which a warm process spares its runs
    from pyarrow import parquet

    if scores is None:
        samples, targets, scores = samples[:0], targets[:0], np.zeros((0, 1), np.float32)

    def column(values):
        # pa.array() would import pandas to look at them, 0.8 s of every run.
        buffer = pa.py_buffer(np.ascontiguousarray(values))
        return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, buffer])

    columns = {"sample": column(samples), "true": column(targets)}
    if targets.dtype.kind == "f":
        columns["predicted"] = column(scaling.original(scores[:, 0]))
    else:
        columns["predicted"] = column(scores.argmax(axis=1))
        columns["scores"] = pa.FixedSizeListArray.from_arrays(column(scores), scores.shape[1])
    beside = Path(f"{path}.part")
    parquet.write_table(pa.Table.from_arrays([*columns.values()], [*columns]), beside)
    beside.replace(path)


def refuse_foreign(output, checkpoint_folder):
    """Check that a run's results overwrite no foreign file and do not lie among its checkpoints.

    Raises:
        ValueError: they would, or do.
    """
    output, checkpoint_folder = Path(output).resolve(), Path(checkpoint_folder).resolve()
    if output == checkpoint_folder or checkpoint_folder in output.parents:
        raise ValueError(
            "results cannot lie among checkpoints, which are deleted: "
            f"{output} is in {checkpoint_folder}"
        )
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file; the results need a folder")
    if checkpoints.is_begun(checkpoint_folder):
        return  # then its first session has looked, and what is there may be half of the results
    metrics = output / "metrics.json"
    names = [name for each in FILES for name in (each, f"{each}.part")]
    if metrics.exists():
        names = [] if b'"checksum"' in metrics.read_bytes() else ["metrics.json"]
    foreign = [output / name for name in names if (output / name).exists()]
    if conditions.is_ours(output):  # Snakemake deletes the other files before it runs a job again
        foreign = [file for file in foreign if file.name != conditions.FILE]
    if foreign:
        raise ValueError(
            f"{foreign[0]} is there already and is no result of a run; expected a folder without it"
        )


def write_trace(path, sessions):
    """CSV of session, seconds since 1970, CPU seconds used so far in all sessions."""
    lines, before = ["session,time,cpu_seconds\n"], 0.0
    for number, session in enumerate(sessions, start=1):
        lines += [f"{number},{time:.3f},{before + cpu:.3f}\n" for time, cpu in session.trace]
        before += session.cpu
    write_text(path, "".join(lines))


def _finite(value):
    """JSON has no NaN and no infinity."""
    return float(value) if math.isfinite(value) else None
