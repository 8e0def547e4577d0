"""What stands in held-out rows decides nothing, whatever kind of data it is."""

import numpy as np
import pandas as pd
import pytest
from conftest import DDP, RUN, same_weights, usual, vary

from allcores_study.config.run import Entry
from allcores_study.data import folds, storage
from allcores_study.data.folds import Assignable
from allcores_study.datasets import table
from allcores_study.serving import samples
from allcores_study.serving.model import Model
from allcores_study.serving.predictor import Predictor

ROWS = 30
NOISE = np.random.default_rng(0).normal(size=(ROWS, 2, 4)).astype(np.float32)
IMAGES = np.random.default_rng(0).integers(0, 256, (ROWS, 1, 4, 4), np.uint8)
LABELS = np.arange(ROWS) % 2
TOWNS = np.array(["Bonn", "Ulm", "Kiel"])[np.arange(ROWS) % 3].astype("U8")
LOSS = {"classes": RUN.loss, "numbers": Entry("MSELoss", "MSELoss", {})}


def arrays(values, planted):
    """Samples of arrays with extreme values in some rows."""
    inputs = values.copy()
    inputs[planted] = 255 if inputs.dtype == np.uint8 else 1e6
    samples = storage.Samples(inputs.shape, [inputs], LABELS, ROWS, usual(2), ["a", "b"])
    samples.dtype = inputs.dtype
    return samples


def categories(file, planted):
    """Samples of a table, with a category of their own in some rows."""
    frame = pd.DataFrame({"size": NOISE[:, 0, 0], "town": TOWNS, "y": LABELS})
    frame.loc[planted, ["size", "town"]] = 1e6, "Aachen"
    frame.to_csv(file, index=False)
    return table.load(None, path=str(file), target="y")


KINDS = {
    "images": lambda file, planted: arrays(IMAGES, planted),
    "signals": lambda file, planted: arrays(NOISE, planted),
    "rows": lambda file, planted: arrays(NOISE[:, 0], planted),
    "categories": categories,
}


# What is scaled, and by what, is decided before ranks are forked.
@pytest.mark.parametrize(
    ("kind", "targets", "strategy"),
    [
        *((kind, "classes", RUN.strategy) for kind in KINDS),
        ("rows", "numbers", RUN.strategy),
        ("images", "classes", DDP),
    ],
    ids=lambda value: getattr(value, "label", value),
)
def test_what_is_planted_into_held_out_rows_changes_no_weight(
    tmp_path, laboratory, kind, targets, strategy
):
    of_run = {"folds": 3, "fold": 1, "crop": 0, "flip": False, "loss": LOSS[targets]}
    run = vary(strategy=strategy, workers=2 if strategy is DDP else 1, **of_run)
    planted, results = np.zeros(0, int), {}
    for name in ("clean", "planted"):
        made = KINDS[kind](tmp_path / "mine.csv", planted)
        if targets == "numbers":
            made.targets, made.task, made.names = NOISE[:, 0, 1], usual(None), None
        folder = laboratory.folder / "data" / name
        storage.write(folder, made)
        fold_of = folds.of_run(run, Assignable.of(storage.open_dataset(folder)))
        planted = np.flatnonzero(fold_of == run.fold)[:2]
        entry = Entry(name, "fake", {})
        results[name] = laboratory.trained(vary(run, dataset=entry), name)
    (clean, clean_weights), (metrics, weights) = results.values()
    assert same_weights(clean_weights, weights)
    assert clean["held_out_unknown"] == 0
    assert metrics["held_out_unknown"] == (2 if kind == "categories" else 0)


def test_a_run_does_not_know_a_category_that_only_held_out_rows_have(tmp_path, laboratory, capfd):
    run = vary(folds=3, fold=1, crop=0, flip=False, dataset=Entry("mine", "fake", {}))
    (row, *_) = np.flatnonzero(Assignable(LABELS).folds(3, run.seed) == 1)
    storage.write(laboratory.folder / "data" / "mine", categories(tmp_path / "mine.csv", [row]))
    for fold in (1, 2):
        laboratory.trained(vary(run, fold=fold), f"fold{fold}")
        said = capfd.readouterr().out
        assert ("1 of 10 held-out samples have a category" in said) == (fold == 1)
    without, knowing = (Predictor(laboratory.folder / f"fold{fold}") for fold in (1, 2))
    file = tmp_path / "new.csv"
    file.write_text("size,town\n0.5,Aachen\n0.5,Ulm\n")
    with pytest.raises(ValueError, match="'Aachen', in 1 of 2 rows; known: 'Bonn', 'Kiel', 'Ulm'"):
        samples.of(file, without, unseen=without.unseen)
    as_none = samples.of(file, without, True, without.unseen).inputs
    assert without.scores(as_none).shape == (2, 2)
    # Together they know it; to the one that does not, it is none.
    both = samples.of(file, knowing).inputs
    (note,) = Model([without, knowing]).predictions(file).notes
    assert note.startswith("1 of 2 samples have a category that some run has not seen")
    assert np.array_equal(without.scores(both), without.scores(as_none))
