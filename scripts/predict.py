"""Predict classes or numbers for new samples with a trained run, or the average of several.

    python scripts/predict.py results/mine/runs/photos/lenet/cosine/serial/w1t1 my_new_photos

RUN is the folder of a run, or one that holds several, such as all folds of a study: then their
probabilities are averaged. DATA is a .npz with `images` or `inputs` and perhaps `labels` or
`targets`, a .npy, a table as .csv or .parquet with the columns that the run was trained on, a
folder of images, or the folder of a prepared dataset. What is written has a row per sample: its
name, what is predicted, what is true where that is known, the probability of each class.
"""

import argparse
import sys
from pathlib import Path

from allcores.machine import cores, lean_torch


def main(flags):
    if flags.threads < 1:
        raise ValueError(f"--threads: found {flags.threads}; expected a number from 1")
    # numpy and torch read these when they are imported, so that has to wait until here.
    cores.set_thread_variables(flags.threads)
    lean_torch.import_torch()
    import numpy as np
    import pandas as pd

    from allcores.serving import samples
    from allcores.serving.predictor import Predictor

    folders = sorted(file.parent for file in flags.run.rglob("metrics.json")) or [flags.run]
    every = [Predictor(folder) for folder in folders]
    # Without the runs by which candidates were judged, unless there are only such.
    predictors = [each for each in every if not each.run.inner_folds] or every
    first = predictors[0]
    for each in predictors:
        if (each.classes, each.shape) != (first.classes, first.shape):
            raise ValueError(f"{flags.run}: its runs are of different classes or samples")
    given = samples.read(flags.data, first)
    found = np.mean([each.predictions(given.inputs) for each in predictors], axis=0)
    if first.classes is None:
        table, score = _of_numbers(pd, given, found[:, 0])
    else:
        table, score = _of_classes(pd, given, found, np.array(first.classes))
    table.to_csv(flags.output, index=False)
    average = f", averaged over {len(predictors)} runs" if len(predictors) > 1 else ""
    print(f"{len(table):,} samples{average}{score}; written to {flags.output}")


def _of_classes(pd, given, probabilities, classes):
    """The table of what is written, and how good it is, in words."""
    predicted = probabilities.argmax(axis=1)
    table = pd.DataFrame({"sample": given.names, "predicted": classes[predicted]})
    score = ""
    if given.true is not None:
        table["true"] = classes[given.true]
        score = f"; accuracy {(predicted == given.true).mean():.2%}"
    return table.join(pd.DataFrame(probabilities, columns=[f"p_{name}" for name in classes])), score


def _of_numbers(pd, given, predicted):
    from allcores.training import metrics

    table = pd.DataFrame({"sample": given.names, "predicted": predicted})
    if given.true is None:
        return table, ""
    found = metrics.of_numbers(given.true, predicted)
    table["true"] = given.true
    return table, f"; R2 {found['r2']:.3f}, RMSE {found['rmse']:.4g}, MAE {found['mae']:.4g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="folder of a run, or of several")
    add("data", type=Path, metavar="DATA", help="what to predict")
    add(
        "--output",
        type=Path,
        default=Path("predictions.csv"),
        metavar="FILE",
        help="(default: predictions.csv)",
    )
    add("--threads", type=int, default=1, metavar="N", help="to compute with (default: 1)")
    try:
        main(parser.parse_args())
    except (ValueError, OSError) as error:
        sys.exit(f"predict.py: {error}")
