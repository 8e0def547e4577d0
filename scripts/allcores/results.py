"""What a run leaves behind, written and read back: metrics.json and the CPU trace."""

import hashlib
import json
from pathlib import Path

import numpy as np

from allcores import metrics as scoring
from allcores.data import write_text


def metrics(run, code, info, trained, scores):
    """What metrics.json says of the training itself.

    Args:
        code: fingerprint of the code.
        info: of the dataset.
        trained: the last checkpoint.
        scores: epoch -> what evaluation.evaluate gave.
    """
    epochs = [
        {
            "epoch": number + 1,
            **record,
            "seconds": sum(record["phases"].values()),
            "accuracy": scores[number]["accuracy"] if number in scores else None,
            "held_out_loss": scores[number]["loss"] if number in scores else None,
        }
        for number, record in enumerate(trained["epochs"])
    ]
    final = scores[run.epochs - 1]
    return {
        "settings": json.loads(run.to_json()),
        "code": code,
        "dataset_sha256": info["sha256"],
        "classes": info["classes"],
        **final,
        "accuracy_per_class": _without_nan(
            scoring.accuracy_per_class(np.array(final["confusion"]))
        ),
        "epochs": epochs,
        "training_seconds": sum(epoch["seconds"] for epoch in epochs),
    }


def write_metrics(path, content):
    """Write metrics.json with a checksum of its own, so that an edited one is noticed."""
    write_text(path, json.dumps(content | {"sha256": _checksum(content)}, indent=1))


def read_metrics(path):
    """What write_metrics wrote.

    Raises:
        ValueError: the file was changed since.
    """
    try:
        content = json.loads(Path(path).read_text())
        sound = content.pop("sha256") == _checksum(content)
    except (ValueError, KeyError):
        sound = False
    if not sound:
        raise ValueError(
            f"{path} was changed after the training that wrote it. Delete it to train again"
        )
    return content


def write_trace(path, trace):
    """CSV of (seconds since 1970, CPU seconds used so far)."""
    write_text(path, "time,cpu_seconds\n" + "".join(f"{t:.3f},{cpu:.3f}\n" for t, cpu in trace))


def _checksum(content):
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _without_nan(values):
    """JSON has no NaN."""
    return [None if np.isnan(value) else float(value) for value in values]
