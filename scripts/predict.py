"""Predict classes, labels or numbers for new samples with a trained run, or the average of several.

    python scripts/predict.py results/mine/runs/photos/lenet/cosine/serial/w1t1 my_new_photos
    python scripts/predict.py results/mine/runs/patients new.csv --model mlp

RUN is the folder of a run, or one that holds several, such as all folds of a study: then their
predictions are averaged, if they are of one dataset, the same columns and the same targets. DATA is
a .npz with `images` or `inputs` and perhaps `labels` or `targets`, a .npy, a table as .csv or
.parquet with the columns that the run was trained on, a folder of images, or the folder of a
prepared dataset; for texts a .csv or .parquet. The output has a row per sample: its name, the
prediction, the true value if it is known, and the probability of each class. Where a class is told
for each pixel it has the share of each, and the masks are written to the output's name with .npz.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from allcores.machine import cores, lean_torch


def main(flags: argparse.Namespace) -> None:
    if flags.threads < 1:
        raise ValueError(f"--threads: found {flags.threads}; expected a number from 1")
    # numpy and torch read these when they are imported, so that has to wait until here.
    cores.set_thread_variables(flags.threads)
    lean_torch.import_torch()
    from allcores_study.serving import ensemble, output, samples

    output.refuse_foreign(flags.output)
    predictors = ensemble.read(flags.run, flags.model)
    unseen = ensemble.unseen(predictors)
    new_samples = samples.read(flags.data, predictors[0], flags.unknown_as_none, unseen)
    predictions = ensemble.mean(predictors, new_samples.inputs)
    table, score = output.of(new_samples, predictions, predictors[0].task, predictors[0].names)
    table.to_csv(flags.output, index=False)
    arrays = output.save_arrays(flags.output, predictors[0].task, predictions)
    files = flags.output if arrays is None else f"{flags.output} and {arrays}"
    print(f"{len(table):,} samples, {ensemble.description(predictors)}{score}; written to {files}")
    for note in (*new_samples.notes, *ensemble.notes(predictors, new_samples.inputs, flags.run)):
        print(f"NOTE: {note}")


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
    add(
        "--model",
        metavar="LABEL",
        help="use only the runs of this model, or of the candidates that were chosen for it",
    )
    add(
        "--unknown-as-none",
        action="store_true",
        help="encode a category that the run does not know as none of those it knows",
    )
    add("--threads", type=int, default=1, metavar="N", help="how many to compute with (default: 1)")
    try:
        main(parser.parse_args())
    except (ValueError, OSError) as error:
        sys.exit(f"predict.py: {error}")
