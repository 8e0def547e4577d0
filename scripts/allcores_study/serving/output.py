"""The table that scripts/predict.py writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from allcores_study.serving.samples import NewSamples
    from allcores_study.tasks.base import Task

# The start of every written file.
BEGIN = "sample,predicted"


def refuse_foreign(file: str | Path) -> None:
    """Check that a file is missing, or was written by predict.py.

    Raises:
        ValueError: it is another program's file.
    """
    if Path(file).exists():
        with Path(file).open(errors="replace") as lines:
            if not lines.readline().startswith(BEGIN):
                raise ValueError(
                    f"--output: {file} exists and was not written by predict.py; choose another"
                )
    elif arrays_beside(file).exists():
        raise ValueError(
            f"--output: {arrays_beside(file)} exists without a table beside it; choose another"
        )


def save_arrays(file: str | Path, task: Task, answers: np.ndarray) -> Path | None:
    """Save what no table can hold, such as masks, beside one; return the file, or None."""
    arrays = task.arrays(answers)
    if not arrays:
        return None
    np.savez_compressed(arrays_beside(file), **arrays)  # type: ignore[arg-type]
    return arrays_beside(file)


def arrays_beside(file: str | Path) -> Path:
    """Return the file that save_arrays() writes."""
    return Path(f"{file}.npz")


def of(
    samples: NewSamples, answers: np.ndarray, task: Task, names: list[str] | None
) -> tuple[pd.DataFrame, str]:
    """Return (the table to write, the score in words; "" if no true answers are known).

    Args:
        answers: (n, outputs), see tasks.base.Task.answers().
        names: of the outputs; None: there is one.
    """
    columns, score = task.told(answers, samples.true, names)
    table = pd.DataFrame({"sample": samples.names} | columns)
    return table, f"; {score}" if score else ""
