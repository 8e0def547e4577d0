"""Lists in a model's entry, and the choice between their candidates inside of each fold."""

import itertools
import json
import shutil
from functools import partial
from math import inf, prod
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from conftest import same_weights
from hypothesis import given
from hypothesis import strategies as st
from project import copy
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from allcores.files import read_json, write_json
from allcores.loop.sharding import shards, shuffled
from allcores_study.analysis import selection, writing
from allcores_study.analysis.study import Study, log_of_failure
from allcores_study.config import candidates, grid, ranges, schema, sweeps
from allcores_study.data import folds
from allcores_study.datasets import digits
from allcores_study.records import run_files
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.records.run_files import RunFolder

CONFIG = """
models:
  mlp:
    {batch_size: [16, 32], epochs: 2, hidden: [16],
     optimizer: {name: adam, lr: [0.0003, 0.003, 0.03]}}
studies:
  nested: {datasets: [digits], folds: 2, models: [mlp], select: 2}
precision: fp32
memory_format: contiguous
"""
RATES = (0.0003, 0.003, 0.03)
SEED, EPOCHS, INNER, OUTER = 0, 2, 2, 2
PIXELS = next(iter(digits.load(None).chunks)) / 255


class Net(ClassifierMixin, BaseEstimator):
    """The same net, trained by hand. What it is given are positions in the dataset."""

    def __init__(self, batch_size=1, lr=0.1):
        self.batch_size, self.lr = batch_size, lr

    def fit(self, positions, labels):
        training_pixels = PIXELS[positions]
        self.inputs_ = torch.tensor(
            (PIXELS - training_pixels.mean()) / training_pixels.std(), dtype=torch.float32
        )
        targets = torch.tensor(load_digits().target)
        torch.manual_seed(SEED)
        units = prod(self.inputs_.shape[1:])
        self.net_ = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(units, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10)
        )
        optimizer = torch.optim.Adam(self.net_.parameters(), lr=self.lr)
        for epoch in range(EPOCHS):
            for batch in shards(shuffled(np.sort(positions), SEED, epoch), self.batch_size, 0, 1):
                scores = self.net_(self.inputs_[batch.samples])
                torch.nn.functional.cross_entropy(scores, targets[batch.samples]).backward()
                optimizer.step()
                optimizer.zero_grad()
        self.classes_ = np.arange(10)
        return self

    @torch.inference_mode()
    def predict(self, positions):
        return self.net_(self.inputs_[positions]).argmax(dim=1).numpy()


def by_hand():
    """Of each outer fold: the mean inner score of each candidate, and the score of the best."""
    labels = load_digits().target
    split = partial(StratifiedKFold, shuffle=True, random_state=SEED)
    positions = np.arange(len(labels))
    for train, held_out in split(OUTER).split(positions, labels):
        search = GridSearchCV(Net(), {"batch_size": [32], "lr": RATES}, cv=split(INNER))
        search.fit(train, labels[train])
        yield search.cv_results_["mean_test_score"], search.score(held_out, labels[held_out])


def test_a_selection_is_scikit_learns_nested_cross_validation(tmp_path):
    project = copy(tmp_path)
    project.config.write_text(CONFIG.replace("batch_size: [16, 32]", "batch_size: 32"))
    project.call()
    results = project.results / "studies" / "nested"
    trials = pd.read_csv(results / "candidates.csv")
    runs = pd.read_csv(results / "runs.csv").sort_values("split")
    assert list(runs["model"].unique()) == ["mlp"]
    for fold, (scores, score) in enumerate(by_hand()):
        of_fold = trials[trials["split"] == f"fold {fold} of {OUTER}"]
        assert tuple(of_fold["swept_lr"]) == RATES
        assert of_fold["score"].to_numpy() == pytest.approx(scores, abs=2e-3)
        assert np.argmax(of_fold["score"]) == np.argmax(scores) == np.argmax(of_fold["chosen"])
        assert runs["accuracy"].iloc[fold] == pytest.approx(score, abs=2e-3)
    # Each candidate on two inner folds of each fold, and the final runs.
    trained = run_files.below(project.results)
    assert len(trained) == len(RATES) * OUTER * INNER + OUTER
    said = (results / "verdict.rst").read_text()
    assert "* mlp: one of 3 candidates was chosen for each fold and seed, on the" in said
    assert "mlp: choosing took" in said
    assert len(pd.read_csv(results / "sweep_table.csv")) == len(RATES)
    assert project.planned() == {}
    # A candidate more is trained, and nothing else.
    config = project.config.read_text()
    project.edit("mine.yaml", "0.03]", "0.03, 0.01]")
    project.configure(lambda config: config.update(runs_per_job=1))
    planned = project.planned()
    assert planned["train"] == OUTER * INNER
    assert planned["select_candidate"] == OUTER
    project.config.write_text(config)
    assert project.trains() == 0


def expanded(models, **study):
    config = yaml.safe_load(CONFIG)
    config["models"] = yaml.safe_load(models)
    config["studies"]["nested"] |= {"models": list(config["models"])} | study
    return sweeps.expanded(config)


def test_lists_are_a_grid_and_labels_say_what_varies():
    config = expanded("""
lenet: {width: [0.5, 1.0], batch_size: 8, epochs: 1, optimizer: {name: adam, lr: [0.1, 1.0e-05]}}
mlp: {hidden: [16, 8], batch_size: 8, epochs: 1, optimizer: {name: adam, betas: [0.9, 0.99], lr: 1}}
deep: {name: mlp, hidden: [[16], [16, 8]], batch_size: 8, epochs: 1, optimizer: {name: sgd, lr: 1}}
""")
    labels = list(config["models"])
    assert labels == [
        "lenet-width0.5-lr0.1",
        "lenet-width0.5-lr1e-05",
        "lenet-width1.0-lr0.1",
        "lenet-width1.0-lr1e-05",
        "mlp",
        "deep-hidden16",
        "deep-hidden16x8",
    ]
    assert config["studies"]["nested"]["models"] == labels
    assert config["models"]["lenet-width1.0-lr0.1"]["name"] == "lenet"
    assert config["models"]["mlp"]["hidden"] == [16, 8]
    assert config["models"]["deep-hidden16"]["hidden"] == [16]
    assert config["swept"]["deep-hidden16"] == {"family": "deep", "values": {"hidden": [16]}}
    assert sweeps.expanded({"models": {}, "studies": {}}) == {"models": {}, "studies": {}}
    long = {f"lenet{'x' * 50}": yaml.safe_load(CONFIG)["models"]["mlp"] | {"name": "mlp"}}
    config = expanded(yaml.safe_dump(long))
    assert len(config["models"]) == 6
    assert all(len(label) <= 60 for label in config["models"])


@given(st.lists(st.integers(1, 300), min_size=1, max_size=9), st.integers(1, 30), st.integers(0, 9))
def test_candidates_are_drawn_from_grids_of_any_size(sizes, count, seed):
    """Also of 10^22 of them, which no machine has room for."""
    total = prod(sizes)
    count = min(count, total)
    axes = [ranges.Swept((f"key{n}",), list(range(size))) for n, size in enumerate(sizes)]
    drawn = ranges.draw(axes, {"count": count, "seed": seed})
    assert len(set(drawn)) == count
    assert drawn == sorted(drawn), "in the order of the grid"
    assert drawn == ranges.draw(axes, {"count": count, "seed": seed})
    if total <= 100:
        every = list(itertools.product(*(range(size) for size in sizes)))
        assert ranges.draw(axes, None) == every
        assert set(drawn) <= set(every)


def test_some_of_a_grid_are_drawn_by_a_seed():
    entry = yaml.safe_load(CONFIG)["models"]["mlp"]

    def drawn(**sample):
        return expanded(yaml.safe_dump({"mlp": entry | sample}))["models"]

    sets = {seed: drawn(sample={"count": 3, "seed": seed}).keys() for seed in range(9)}
    assert all(len(some) == 3 and some <= drawn().keys() for some in sets.values())
    assert len(set(map(frozenset, sets.values()))) > 1


def test_a_candidate_that_diverges_is_not_chosen(tmp_path):
    inner = {"first": [0.5, 0.7], "worse": [0.4, 0.5], "lost": [0.9, None], "equal": [0.7, 0.5]}
    assert selection.choose({"only": []}) == {"kept": ["only"], "candidates": {}}
    folders = {}
    for label, scores in inner.items():
        folders[label] = [RunFolder(tmp_path / f"{label}{n}") for n in range(len(scores))]
        for folder, score in zip(folders[label], scores, strict=True):
            folder.place.mkdir()
            record = {"accuracy": score, "diverged": score is None, "cpu_seconds": 1.5}
            write_json(folder.place / "metrics.json", record | {"epochs": []})
    choice = selection.choose(folders)
    assert choice["kept"] == ["first"]
    assert selection.choose(folders, keeps=4)["kept"] == ["first", "equal", "worse"]
    assert choice["candidates"]["lost"]["mean"] is None
    assert choice["candidates"]["first"]["core_seconds"] == 3.0
    with pytest.raises(ValueError, match="diverged, or have no accuracy: lost, gone"):
        selection.choose({"lost": folders["lost"], "gone": folders["lost"]})


def test_the_held_out_part_has_no_say():
    """An inner run neither trains on nor scores what the final run is scored on."""
    table = grid.expand(sweeps.expanded(yaml.safe_load(CONFIG)))
    assert len(table.selections) == OUTER
    labels = load_digits().target
    assignable = folds.Assignable(labels)
    info = {"train": len(labels), "shape": [len(labels)]}
    for selected in table.selections.values():
        final = [table.runs[path] for path in selected.final.values()]
        (held_out,) = {
            tuple(folds.split(info, folds.of_run(run, assignable), run.held_out_fold, None, 0)[1])
            for run in final
        }
        for path in [path for paths in selected.inner.values() for path in paths]:
            run = table.runs[path]
            parts = folds.split(info, folds.of_run(run, assignable), run.held_out_fold, None, 0)
            assert not set(held_out) & set(np.concatenate(parts))
    assert json.loads(final[0].to_json()).keys() == json.loads(run.to_json()).keys() - {
        "inner_folds",
        "inner_fold",
    }


@pytest.mark.parametrize(
    ("count", "factor", "counts"),
    [(9, 3, [9, 3]), (10, 3, [10, 4, 2]), (3, 3, [3]), (16, 2, [16, 8, 4, 2]), (9, inf, [9])],
)
def test_one_candidate_in_so_many_goes_on(count, factor, counts):
    assert candidates.rung_counts(count, factor) == counts


HALVING = """
models:
  mlp:
    {hidden: [8], batch_size: 16, epochs: 4,
     optimizer: {name: sgd, lr: [0.001, 0.5, 0.01, 0.1]}}
datasets:
  tiny: {name: synthetic, count: 300, test: 0, size: 8, classes: 10}
studies:
  nested: {datasets: [tiny], folds: 2, models: [mlp], schedules: [cosine], select: 2, halving: 2}
precision: fp32
memory_format: contiguous
runs_per_job: 1
"""


@pytest.fixture(scope="module")
def halved(tmp_path_factory):
    project = copy(tmp_path_factory.mktemp("halved"))
    project.config.write_text(HALVING)
    project.call()
    return project


def test_halving_goes_on_with_the_best_from_where_they_were(halved, tmp_path):
    """As if all had been trained to the end, and half of them forgotten halfway."""
    whole = copy(tmp_path)
    whole.config.write_text(HALVING.replace("halving: 2", "exclusive: true, curves: true"))
    whole.call("results/mine/studies/nested/accuracy_table.html")
    trials = pd.read_csv(halved.results / "studies" / "nested" / "candidates.csv")
    runs = pd.read_csv(halved.results / "studies" / "nested" / "runs.csv")
    table = grid.expand(sweeps.expanded(yaml.safe_load(HALVING)))
    for fold, selected in enumerate(table.selections.values()):
        scores = {label: curve(whole, paths) for label, paths in selected.inner.items()}
        best = sorted(scores, key=lambda label: -scores[label][1])[:2]
        of_fold = trials[trials["split"] == f"fold {fold} of 2"].set_index("candidate")
        for label, one in of_fold.iterrows():
            assert one["epochs"] == (4 if label in best else 2)
            assert one["score"] == scores[label][int(one["epochs"]) - 1]
            for path in selected.inner[label] if label in best else ():
                log = Path(log_of_failure(ResultsFolder(str(halved.results)), table.runs[path]))
                assert "resumed after epoch 2 of 4" in log.read_text()
                assert same_weights(*(weights(project, path) for project in (halved, whole)))
        chosen = max(best, key=lambda label: scores[label][3])
        assert list(of_fold.index[of_fold["chosen"]]) == [chosen]
        accuracy = metrics(whole, selected.final[chosen])["accuracy"]
        assert runs["accuracy"][runs["split"] == f"fold {fold} of 2"].item() == accuracy
    assert not list((halved.results / "checkpoints").rglob("*.allcores"))
    assert halved.planned() == {}
    methods = (halved.results / "studies" / "nested" / "report.html").read_text()
    assert "successive halving with 2 rungs" in methods


def metrics(project, path):
    return read_json(project.results / "runs" / path / "metrics.json")


def weights(project, path):
    return torch.load(project.results / "runs" / path / "weights.pt")


def curve(project, paths):
    """The mean accuracy of some runs after each epoch."""
    of_runs = [[one["accuracy"] for one in metrics(project, path)["epochs"]] for path in paths]
    return [fmean(accuracies) for accuracies in zip(*of_runs, strict=True)]


def test_a_damaged_choice_between_the_last_candidates_is_made_again(halved):
    """Although the choice before it, whose output it waits for, is not rebuilt."""
    (file, _) = sorted((halved.results / "selections").rglob("nall_seed0.json"))
    whole = file.read_text()
    file.write_text(whole[:100])
    assert halved.planned()["select_candidate"] == 1
    file.write_text(whole)


def test_a_report_does_without_a_choice_that_was_not_made(halved, monkeypatch):
    monkeypatch.chdir(halved.folder)
    folder = ResultsFolder("results/mine")
    config = sweeps.expanded(schema.defaults() | yaml.safe_load(HALVING))
    table = grid.expand(config)
    (first, _) = table.selections.values()
    whole = Path(folder.selection(first.path)).read_text()
    Path(folder.selection(first.path)).unlink()
    study = Study(config, folder.without_missing(table), folder, "nested")
    writing.write(study, "snakemake", lambda _: pd.DataFrame(columns=["importance"]))
    missing = pd.read_csv(folder.csv("nested", "missing"))
    assert list(missing["run"]) == [first.path]
    assert len(pd.read_csv(folder.csv("nested", "runs"))) == 1
    Path(folder.selection(first.path)).write_text(whole)


def test_a_lost_result_of_a_higher_rung_is_noticed_and_no_checkpoint_stays(halved):
    records = list((halved.results / "runs").rglob("metrics.json"))
    whole = [file for file in records if "_inner" in str(file) and "_after" not in str(file)]
    whole[0].unlink()
    assert halved.trains() == 1
    # A choice says of itself by what it was made, whatever Snakemake remembers.
    shutil.move(halved.folder / ".snakemake", halved.folder / "records")
    config = halved.config.read_text()
    halved.edit("mine.yaml", "halving: 2", "halving: 2, metrics: [log_loss]")
    assert halved.planned()["select_candidate"] >= 2
    halved.config.write_text(config)
    shutil.rmtree(halved.folder / ".snakemake")
    shutil.move(halved.folder / "records", halved.folder / ".snakemake")
    # Rungs that are new begin again where the run that they are part of is done.
    halved.edit("mine.yaml", "0.1]", "0.1, 0.2, 0.3]")
    halved.call("results/mine/studies/nested/accuracy_table.html")
    assert not list((halved.results / "checkpoints").rglob("*.allcores"))


def test_it_is_told_when_all_candidates_diverge(tmp_path):
    project = copy(tmp_path)
    project.config.write_text(
        HALVING.replace("[0.001, 0.5, 0.01, 0.1]", "[1.0e+29, 1.0e+30, 2.0e+30]")
    )
    said = project.call(expect=1)
    assert "select_candidate.py: all candidates diverged, or have no accuracy: mlp-lr1e_29" in said
    assert "Traceback" not in said
    assert not list((project.results / "checkpoints").rglob("*.allcores"))
