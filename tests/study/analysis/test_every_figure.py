"""Every figure, drawn from the records of real runs: what it shows, and that it can be read."""

import dataclasses
import itertools

import matplotlib.text
import numpy as np
import pandas as pd
import pytest
from conftest import DDP, Laboratory, using, vary
from matplotlib.collections import LineCollection

from allcores_study.analysis import collect, comparison, metrics, products, style, tidy
from allcores_study.analysis.metrics import ACCURACY
from allcores_study.config.run import Entry
from allcores_study.records import run_files

REFERENCES = (
    {"model": "mlp", "label": "a cluster", "cores": 4, "seconds": 2, "images": 1000},
    {"model": "mlp", "label": "a GPU", "seconds": 1, "images": 1000},
)
FACTS = products.StudyFacts("s", "serial", 0.4, REFERENCES, base="serial on 1 core")
# Those of other tasks and of wide sweeps have tests of their own.
FIGURES = [name for name in products.sections() if name.endswith("_figure")]
FIGURES.remove("masks_figure")
SETUPS = ["serial", "ddp, 2 workers", "hogwild, 2 workers"]
STRATEGIES = ["serial", "ddp", "hogwild"]
MODELS = ["mlp", "convolutional-lr0.001-wd0.0005"]
CLASSES = ["T-shirt/top", "Ankle boot", "Sandal"]
# The figures of the baseline alone, and of candidates; the others name every setup that they draw.
WITHOUT_SETUPS = {
    **dict.fromkeys(("confusion_figure", "probabilities_figure"), CLASSES),
    **dict.fromkeys(("columns_figure", "residuals_figure"), MODELS),
    "sweep_figure": ["lr", *MODELS],
    "staleness_figure": SETUPS[2:],
    **dict.fromkeys(("utilisation_figure", "packing_figure"), STRATEGIES),
    **dict.fromkeys(("speedup_figure", "elapsed_figure"), STRATEGIES),
}
# What is written at the axes of each figure, with units.
AXES = {
    "accuracy_figure": ["accuracy (%) on the test folds"],
    "columns_figure": ["how much worse accuracy is (points)", *"abc"],
    "confusion_figure": ["predicted class", "true class", "% of the true class"],
    "elapsed_figure": ["cores", "training time per 1,000 samples (s)"],
    "learning_curve_figure": ["epoch", "training time (s)", "accuracy (%) on the test folds"],
    "loss_figure": ["training time (s)", "training loss"],
    "packing_figure": ["time since the first run began (min)", "busy cores"],
    "phases_figure": ["time per epoch (s)"],
    "probabilities_figure": [
        *("false positive rate", "true positive rate", "recall", "precision"),
        *("probability of the predicted class (%)", "right (%)"),
    ],
    "residuals_figure": ["true", "predicted"],
    "size_figure": ["training samples", "time per epoch (s)"],
    "speedup_figure": ["speedup over serial"],
    "staleness_figure": ["staleness (updates)", "share of the updates"],
    "sweep_figure": ["lr", "accuracy (%)"],
    "utilisation_figure": ["time since the first run began (min)", "busy cores"],
}


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    """Name of each tidy CSV or table -> its frame: two models, three setups, two folds."""
    laboratory = Laboratory(tmp_path_factory.mktemp("figures"))
    pairs = []
    for label, fold in itertools.product(MODELS, (0, 1)):
        model = Entry(label, "mlp", {"hidden": [7 if label == "mlp" else 20]})
        run = vary(model=model, folds=2, fold=fold)
        for each in (run, using(DDP, 2, run), using(Entry("hogwild", "hogwild", {}), 2, run)):
            name = f"{label}{fold}{each.strategy.label}"
            laboratory.trained(each, name, curves=True)
            files = laboratory.folder / name
            pairs.append((run_files.metrics(files), files))
    records = [record for record, _ in pairs]
    measured = [metrics.measured(record, files, [ACCURACY]) for record, files in pairs]
    found = {name: getattr(tidy, name)(records) for name in ("epochs", "staleness")}
    found |= {name: getattr(tidy, name)(records) for name in ("classes", "confusion")}
    names = dict(zip("012", CLASSES, strict=True))
    for name, columns in (("classes", ["class"]), ("confusion", ["true", "predicted"])):
        found[name][columns] = found[name][columns].replace(names)
    found |= {"runs": tidy.runs(records, measured), "facts": FACTS}
    found |= {"utilisation": collect.of_all(pairs, lambda run, _: collect.utilisation(run))}
    found |= {"predictions": collect.predictions_of_all(pairs)}
    found |= {f"against_{name}": found[name] for name in ("runs", "utilisation")}
    baseline = found["runs"].query("strategy == 'serial'")
    swept = pd.concat([baseline.assign(swept_lr=lr) for lr in (0.1, 0.2)], ignore_index=True)
    found["candidates"] = swept.assign(candidate="c")
    found["speed_table"] = _read_back("speed_table", found, "runs", "epochs", "facts")
    columns = [*comparison.TRAINED, *tidy.REPEAT]
    of_each = [(0.2, "a"), (0.1, "b"), (-0.01, "c")]
    shares = [baseline[columns].assign(column=name, importance=most) for most, name in of_each]
    found["importance"] = pd.concat(shares, ignore_index=True)
    found["importance"]["importance"] *= 1 + 0.1 * found["importance"].index
    found["columns_table"] = _read_back("columns_table", found, "runs", "importance", "facts")
    return found


def _read_back(name, frames, *inputs):
    table = products.load(name).table(**{key: frames[key] for key in inputs})
    return table.replace("", np.nan)


def of_two_sizes(frames):
    """The same with half as many training samples, in 0.6 of the time."""
    runs, epochs = frames["runs"], frames["epochs"]
    half = {"train_size": "13"}
    runs = pd.concat([runs, runs.assign(train_samples=13, **half)], ignore_index=True)
    faster = epochs.assign(seconds=0.6 * epochs["seconds"], **half)
    sized = {"runs": runs, "epochs": pd.concat([epochs, faster], ignore_index=True)}
    return frames | sized


def expected(name, frames):
    """Numbers that a figure has to show, from its tables."""
    runs, epochs, speeds = (frames[key] for key in ("runs", "epochs", "speed_table"))
    elapsed = tidy.with_elapsed(epochs)
    mean = elapsed.groupby([*tidy.SETTINGS, "epoch"])
    timed = tidy.timed(runs, epochs)
    counts = frames["staleness"].groupby(["model", "staleness"])["updates"].sum()
    cells = frames["confusion"].query("strategy == 'serial'")
    cells = products.load("confusion_figure").of_first_and_best(cells)
    cells = cells.groupby(["model", "true", "predicted"])["samples"].sum()
    if name == "accuracy_figure":
        table = _read_back("accuracy_table", frames, "runs", "facts")
        return 100 * np.concatenate([table["accuracy"], runs["score"]])
    return {
        "columns_figure": 100 * frames["columns_table"]["importance"],
        "confusion_figure": 100 * cells / cells.groupby(["model", "true"]).transform("sum"),
        "elapsed_figure": [*1000 * speeds["seconds"] / speeds["samples"], 2, 1],
        "learning_curve_figure": [*100 * mean["accuracy"].mean(), *mean["elapsed"].mean()],
        "loss_figure": mean["loss"].mean(),
        "phases_figure": epochs[epochs["epoch"] > 1]
        .groupby(tidy.SPEED_SETTINGS)["compute_seconds"]
        .median(),
        "residuals_figure": frames["predictions"].query("strategy == 'serial'")["predicted"],
        "size_figure": timed["epoch_seconds"],
        "speedup_figure": speeds["speedup"],
        "staleness_figure": counts / counts.groupby("model").transform("sum"),
        **dict.fromkeys(("sweep_figure", "search_figure"), 100 * frames["candidates"]["score"]),
        "probabilities_figure": [0, 1],
    }.get(name, [tidy.cores_available(runs)])


def numbers(figure):
    """All that is drawn at some place, or as a colour of a heat map."""
    found = []
    for panel in figure.axes:
        found += [np.ravel(line.get_xydata()) for line in panel.lines]
        found += [np.array([box.get_width() for box in panel.patches if hasattr(box, "get_width")])]
        found += [np.ravel(image.get_array()) for image in panel.images]
        for drawn in panel.collections:
            if isinstance(drawn, LineCollection):
                found += map(np.ravel, drawn.get_segments())
    found = np.concatenate(found).astype(float)
    return found[np.isfinite(found)]


def texts(figure, monkeypatch):
    """Text -> its box in pixels, [(text, box), ...] of all that is drawn."""
    figure.draw_without_rendering()  # the layout is made
    drawn, draw = [], matplotlib.text.Text.draw
    with monkeypatch.context() as patch:
        patch.setattr(
            matplotlib.text.Text,
            "draw",
            lambda text, renderer: (drawn.append(text), draw(text, renderer)),
        )
        figure.canvas.draw()
    shown = [text for text in drawn if text.get_text() and text.get_visible()]
    return [(text.get_text(), text.get_window_extent()) for text in shown]


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_shows_its_table_and_can_be_read(name, frames, monkeypatch):
    if name == "size_figure":
        frames = of_two_sizes(frames)
    if name == "residuals_figure":
        frames = frames | {"predictions": frames["predictions"].drop(columns="scores")}
        frames |= {"facts": dataclasses.replace(FACTS, targets="numbers")}
    draw = products.load(name).figure
    figure = draw(**products.arguments_of(draw, frames))
    shown = texts(figure, monkeypatch)
    written = [text for text, _ in shown]
    assert set(AXES[name]) <= set(written)
    assert not any("$" in text for text in written), "a formula of matplotlib's"
    for label in WITHOUT_SETUPS.get(name, SETUPS):
        assert any(label in text for text in written), f"{label} is not in {written}"
    values = numbers(figure)
    for value in np.asarray(expected(name, frames), float):
        assert np.isclose(values, value, rtol=1e-6).any(), f"{value} is not drawn"
    width, height = figure.canvas.get_width_height()
    for text, box in shown:
        inside = box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1
        assert inside, f"{text!r} is outside: {box}, of {width} x {height}"
    for (one, box), (other, second) in itertools.combinations(shown, 2):
        apart = box.padded(-1).overlaps(second.padded(-1))
        assert not apart, f"{one!r} and {other!r} cover each other: {box}, {second}"
    style.plt.close(figure)


def legend(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_legends_name_what_is_drawn_and_nothing_else(frames):
    drawn = products.load("accuracy_figure").figure(frames["runs"], frames["classes"][:0], FACTS)
    assert legend(drawn) == ["one fold", "mean and its 95 % interval"]
    published = dataclasses.replace(FACTS, references=[{"model": "mlp", "score": 0.5}])
    drawn = products.load("accuracy_figure").figure(frames["runs"], frames["classes"], published)
    named = {"one fold", "mean and its 95 % interval", "always the most frequent class"}
    assert set(legend(drawn)) == named | {"published"}
    seeds = pd.concat([frames["runs"].assign(seed=seed) for seed in (0, 1)], ignore_index=True)
    drawn = products.load("accuracy_figure").figure(seeds, frames["classes"], FACTS)
    assert legend(drawn)[0] == "one fold and seed"


def test_the_best_is_at_the_top_beside_a_score_that_is_not_defined(frames):
    scores = {"good": 0.9, "lost": np.nan, "best": 0.95}
    rows = [frames["runs"].assign(model=model, score=score) for model, score in scores.items()]
    runs = pd.concat(rows, ignore_index=True)
    drawn = products.load("accuracy_figure").figure(runs, frames["classes"], FACTS)
    labels = [label.get_text() for label in drawn.axes[0].get_yticklabels()]
    assert labels[0].startswith("best") and labels[-1].startswith("lost"), labels


@pytest.mark.parametrize("limits", [(0.53, 1.04), (0.7, 1.9), (0.003, 0.07)])
@pytest.mark.parametrize("digits", [(1,), (1, 2, 5)])
def test_a_logarithmic_axis_has_at_least_two_labels(limits, digits):
    _, (panel,) = style.panels(1)
    panel.set_ylim(limits)
    style.plain_logarithmic(panel.yaxis, digits)
    panel.figure.draw_without_rendering()
    labels = dict(zip(panel.get_yticks(), panel.get_yticklabels(), strict=True))
    shown = [text for tick, text in labels.items() if limits[0] <= tick <= limits[1]]
    assert len([text for text in shown if text.get_text()]) >= 2
