"""The table that scripts/predict.py writes."""

from pathlib import Path

import numpy as np
import pandas as pd

from allcores.training import evaluation

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


def of(samples, predictions, classes):
    """(the table to write, the score in words; "" if no true answers are known).

    Args:
        samples: samples.NewSamples.
        predictions: (n, classes) probabilities, or (n, 1) numbers.
        classes: names of the classes; None: numbers are predicted.
    """
    if classes is None:
        return _of_numbers(samples, predictions[:, 0])
    return _of_classes(samples, predictions, np.array(classes, dtype=object))


def _of_classes(samples, probabilities, classes):
    predicted = probabilities.argmax(axis=1)
    table = pd.DataFrame({"sample": samples.names, "predicted": classes[predicted]})
    score = ""
    if samples.true is not None:
        table["true"] = classes[samples.true]
        score = f"; accuracy {(predicted == samples.true).mean():.2%}"
    columns = [f"p_{name}" for name in classes]
    return table.join(pd.DataFrame(probabilities, columns=columns)), score


def _of_numbers(samples, predicted):
    table = pd.DataFrame({"sample": samples.names, "predicted": predicted})
    if samples.true is None:
        return table, ""
    table["true"] = samples.true
    measures = evaluation.of_numbers(samples.true, predicted)
    r2 = "undefined" if measures["r2"] is None else f"{measures['r2']:.3f}"
    return table, f"; R2 {r2}, RMSE {measures['rmse']:.4g}, MAE {measures['mae']:.4g}"
