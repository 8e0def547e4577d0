"""The table that scripts/predict.py writes."""

from pathlib import Path

import numpy as np
import pandas as pd

# The start of every written file.
BEGIN = "sample,predicted"


def refuse_foreign(file):
    """Check that a file is missing, or was written by predict.py.

    Raises:
        ValueError: it is another program's file.
    """
    if Path(file).exists():
        with Path(file).open(errors="replace") as lines:
            if not lines.readline().startswith(BEGIN):
                raise ValueError(f"--output: {file} is there and was not written by predict.py")


def save_arrays(file, task, answers):
    """Save what no table can hold beside one, such as masks; returns the file, or None."""
    arrays = task.arrays(answers)
    if not arrays:
        return None
    file = Path(file).with_suffix(".npz")
    np.savez_compressed(file, **arrays)
    return file


def of(samples, answers, task, names):
    """(the table to write, the score in words; "" if no true answers are known).

    Args:
        samples: samples.NewSamples.
        answers: (n, outputs), see tasks.base.Task.answers().
        names: of the outputs; None: there is one.
    """
    columns, score = task.told(answers, samples.true, names)
    table = pd.DataFrame({"sample": samples.names} | columns)
    return table, f"; {score}" if score else ""
