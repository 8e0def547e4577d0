"""The files that a run writes: its metrics and the trace of its CPU time."""

import json
import math
from pathlib import Path

import numpy as np

from allcores.files import write_text
from allcores.study import conditions
from allcores.training import checkpoints
from allcores.training import metrics as scoring

# The files in a run's folder.
FILES = ("metrics.json", "conditions.json", "utilisation.csv", "predictions.parquet", "weights.pt")


def metrics(run, info, trained, scores, diverged):
    """The part of metrics.json that is about the training itself.

    Args:
        info: of the dataset, from dataset.json.
        trained: the last checkpoint; empty if no epoch was completed.
        scores: epoch, counted from 0 -> what evaluation.evaluate returned.
        diverged: failures.DivergedError; None: the run did not diverge.
    """
    epochs = [
        {
            "epoch": number + 1,
            **record,
            "seconds": sum(record["phases"].values()),
            "accuracy": scores[number]["accuracy"] if number in scores else None,
            "held_out_loss": _finite(scores[number]["loss"]) if number in scores else None,
        }
        for number, record in enumerate(trained.get("epochs", []))
    ]
    nothing = dict.fromkeys(("accuracy", "loss", "confusion", "accuracy_per_class"))
    final = nothing if diverged else scores[run.trained_epochs - 1]
    if not diverged:
        recalls = scoring.accuracy_per_class(np.array(final["confusion"]))
        final = final | {"accuracy_per_class": [_finite(value) for value in recalls]}
    return {
        "settings": json.loads(run.to_json()),
        "classes": info["classes"],
        **final,
        "diverged": diverged and vars(diverged),
        "epochs": epochs,
        "training_seconds": sum(epoch["seconds"] for epoch in epochs),
        "start_up_seconds": trained.get("start_up_seconds"),
    }


def write_predictions(path, samples, labels, scores):
    """Write what a network says of the held-out samples, atomically, for any metric to be computed.

    Columns: sample, its position in the dataset; true and predicted, the numbers of classes, int64;
    scores, a list of float32 for each sample, one per class.

    Args:
        samples, labels: (n,) int64.
        scores: (n, classes) float32; None: the run diverged, and there are no rows.
    """
    import pyarrow as pa  # takes a fifth of a second, of which a warm process spares its runs
    from pyarrow import parquet

    if scores is None:
        samples, labels, scores = samples[:0], labels[:0], np.zeros((0, 1), np.float32)
    columns = {"sample": samples, "true": labels, "predicted": scores.argmax(axis=1)}
    flat = pa.array(scores.ravel())
    columns["scores"] = pa.FixedSizeListArray.from_arrays(flat, scores.shape[1])
    beside = Path(f"{path}.part")
    parquet.write_table(pa.table(columns), beside)
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
        names = [] if b'"sha256"' in metrics.read_bytes() else ["metrics.json"]
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
