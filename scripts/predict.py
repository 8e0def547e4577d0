"""Predict classes, labels or numbers for new samples, with a trained model.

    python scripts/predict.py results/mine/studies/first new.csv --model mlp
    python scripts/predict.py results/mine/runs/photos/lenet/cosine/serial/w1t1/test/all/seed0 new/

PLACE is the folder of a study or of a run. Of a study, the model that scored best predicts: one
that was trained on all samples (`final: true`), or else the mean of the runs of all folds.

DATA is one of these:
    an .npz file with `images` or `inputs`
    an .npy file
    an image or a folder of images
    a .csv or .parquet file, for models of a table (with the same columns) or of texts

The output has one row per sample: its name, the prediction, and the probability of each class. For
masks, it has the share of each class, and a file with .npz added to the output's name contains the
predicted masks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from allcores.machine import cores


def main(flags: argparse.Namespace) -> None:
    if flags.threads < 1:
        raise ValueError(f"--threads: found {flags.threads}; expected a number from 1")
    if flags.output.resolve() == flags.data.resolve():
        raise ValueError(f"--output: {flags.output} has the samples; give another name")
    # Set before the imports: numpy and torch read these variables when they are imported.
    cores.set_thread_variables(flags.threads)
    import numpy as np

    from allcores_study.serving.model import Model

    model = Model.of(flags.place, flags.model, flags.dataset)
    predictions = model.predictions(flags.data, flags.unknown_as_none)
    predictions.table.to_csv(flags.output, index=False)
    files = str(flags.output)
    if predictions.arrays:
        np.savez_compressed(f"{flags.output}.npz", **predictions.arrays)  # type: ignore[arg-type]
        files += f" and {flags.output}.npz"
    print(f"{len(predictions.table):,} samples, by {model}; written to {files}")
    for note in predictions.notes:
        print(f"NOTE: {note}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("place", type=Path, metavar="PLACE", help="folder of a study or of a run")
    add("data", type=Path, metavar="DATA", help="samples to predict")
    add(
        "--output",
        type=Path,
        default=Path("predictions.csv"),
        metavar="FILE",
        help="CSV file to write (default: predictions.csv)",
    )
    add("--model", metavar="LABEL", help="the model of a study (default: the best)")
    add("--dataset", metavar="LABEL", help="the dataset, if the study has several")
    add(
        "--unknown-as-none",
        action="store_true",
        help="treat an unknown category as none of the known ones, instead of failing",
    )
    add("--threads", type=int, default=1, metavar="N", help="number of threads (default: 1)")
    try:
        main(parser.parse_args())
    except (ValueError, OSError) as error:
        sys.exit(f"predict.py: {error}")
