"""Predict the classes of new samples with a trained run, or with the average of several.

    python scripts/predict.py results/mine/runs/photos/lenet/cosine/serial/w1t1 my_new_photos

RUN is the folder of a run, or one that holds several, such as all folds of a study: then their
probabilities are averaged. DATA is a .npz with `images` and perhaps `labels`, a .npy of images, a
folder of images, or the folder of a prepared dataset. What is written has a row per sample: its
name, the class that is predicted, the true one where it is known, the probability of each class.
"""

import argparse
import sys
from pathlib import Path

from allcores.machine import cores, lean_torch


def main(flags):
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
            raise ValueError(f"{flags.run}: its runs are of different classes or images")
    given = samples.read(flags.data, first.shape, first.classes)
    found = np.mean([each.probabilities(given.images) for each in predictors], axis=0)
    predicted = found.argmax(axis=1)
    table = pd.DataFrame({"sample": given.names, "predicted": np.array(first.classes)[predicted]})
    if given.true is not None:
        table["true"] = np.array(first.classes)[given.true]
    table = table.join(pd.DataFrame(found, columns=[f"p_{name}" for name in first.classes]))
    table.to_csv(flags.output, index=False)
    average = f", averaged over {len(predictors)} runs" if len(predictors) > 1 else ""
    right = "" if given.true is None else f"; accuracy {np.mean(predicted == given.true):.2%}"
    print(f"{len(table):,} samples{average}{right}; written to {flags.output}")


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
