"""Predict classes, labels or numbers for new samples, with one trained run or several.

    python scripts/predict.py results/mine/runs/photos/lenet/cosine/serial/w1t1 my_new_photos
    python scripts/predict.py results/mine/runs/patients new.csv --model mlp
    python scripts/predict.py results/mine new.csv --final

RUN is the folder of a run, or a folder with several runs, such as all folds of a study. Their
predictions are averaged. The runs must have the same dataset, columns and targets. With --final,
the final model of a study with `final: true` predicts: the one that scored best in
cross-validation, or that of --model.

DATA is one of these:
    an .npz file with `images` or `inputs`, and optionally `labels` or `targets`
    an .npy file
    an image or a folder of images
    a .csv or .parquet file, for runs trained on a table (with the same columns) or on texts
    the folder of a prepared dataset

The output has one row per sample: its name, the prediction, the true value if known, and the
probability of each class. For masks, it has the share of each class, and a file with .npz added to
the output's name contains the predicted masks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from allcores.machine import cores, lean_torch


def main(flags: argparse.Namespace) -> None:
    if flags.threads < 1:
        raise ValueError(f"--threads: found {flags.threads}; expected a number from 1")
    # Set before the imports: numpy and torch read these variables when they are imported.
    cores.set_thread_variables(flags.threads)
    lean_torch.import_torch()
    from allcores_study.serving import ensemble, final_models, output, samples

    output.refuse_foreign(flags.output)
    if flags.final:
        predictors = [final_models.read(flags.run, flags.model)]
    else:
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
    add("run", type=Path, metavar="RUN", help="folder of one run or of several")
    add("data", type=Path, metavar="DATA", help="samples to predict")
    add(
        "--output",
        type=Path,
        default=Path("predictions.csv"),
        metavar="FILE",
        help="CSV file to write (default: predictions.csv)",
    )
    add(
        "--model",
        metavar="LABEL",
        help="use only the runs of this model, or of the candidates that were chosen for it",
    )
    add("--final", action="store_true", help="use a final model of the study or config at RUN")
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
