"""The files of a run, in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from allcores.files import read_json, sha256_of

# The record of a run, which is written after its other files; an inner run of a choice leaves only
# this.
METRICS = "metrics.json"
WEIGHTS, PREDICTIONS = "weights.pt", "predictions.parquet"
RUN_FILES = (METRICS, PREDICTIONS, WEIGHTS)


def metrics(folder: str | Path) -> dict[str, Any]:
    """Return the content of a run's metrics.json.

    Raises:
        ValueError: it is damaged, or was changed since.
        OSError: there is none.
    """
    return read_json(Path(folder, METRICS))


def checked(folder: str | Path, run: dict[str, Any], name: str) -> bytes:
    """Return the content of a run's file once it is known to be what the run wrote.

    Args:
        run: its metrics().

    Raises:
        ValueError: it is gone, or was changed since it was written.
    """
    try:
        content = Path(folder, name).read_bytes()
    except OSError:
        content = b""
    if sha256_of(content) != run["files"].get(name):
        raise ValueError(
            f"{folder}/{name} is gone, or is not what the run wrote; delete {folder} to rerun it"
        )
    return content


def results_of(folder: str | Path) -> Path | None:
    """Return the folder of the results that a run or a final model is in; None: it is in none."""
    parents = Path(folder).absolute().parents
    above = (place for place in parents if place.name in ("runs", "studies"))
    return next((place.parent for place in above if (place.parent / "data").is_dir()), None)


def below(folder: str | Path) -> list[Path]:
    """Return the folders of runs in a folder, sorted by their paths.

    Args:
        folder: folder of a run, of several, or of the results of a config.
    """
    return sorted(file.parent for file in Path(folder).rglob(METRICS))
