"""Lists in a model's entry, and the choice between their candidates inside of each fold."""

import dataclasses
import itertools
import json
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from project import copy
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from allcores.files import write_json
from allcores.loop.sharding import shards, shuffled
from allcores_study.analysis import writing
from allcores_study.analysis.study import Study
from allcores_study.config import grid, ranges, settings, sweeps
from allcores_study.data import folds
from allcores_study.data.facts import Facts
from allcores_study.datasets import digits
from allcores_study.records import run_files
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.training import choosing
from allcores_study.watching.ledger import UpToDateCheck

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
    trained = run_files.below(project.results / "runs")
    assert len(trained) == len(RATES) * OUTER * INNER + OUTER
    left = {False: set(), True: set()}  # by whether it is an inner run
    for run in trained:
        names = {file.name for file in run.iterdir() if not file.name.startswith("made.")}
        left["_inner" in str(run)] |= names
    assert left == {False: set(run_files.RUN_FILES), True: {run_files.METRICS}}
    said = (results / "verdict.txt").read_text()
    assert "mlp: one of 3 candidates was chosen for each fold and seed, on the" in said
    assert "mlp: choosing took" in said
    assert len(pd.read_csv(results / "sweep_table.csv")) == len(RATES)
    assert project.planned() == {}
    # A candidate more is trained, and nothing else.
    config = project.config.read_text()
    project.edit("mine.yaml", "0.03]", "0.03, 0.01]")
    project.configure(lambda config: config.update(runs_per_job=1))
    planned = project.planned()
    # The inner runs of the new one, and the final runs, which choose again.
    assert planned["train"] == OUTER * INNER + OUTER
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
    axes = [ranges.Swept((f"key{n}",), list(range(size))) for n, size in enumerate(sizes)]
    drawn = ranges.draw(axes, {"count": count, "seed": seed})
    assert len(set(drawn)) == len(drawn) == min(count, total)
    assert drawn == ranges.draw(axes, {"count": count, "seed": seed})
    assert drawn[: count // 2] == ranges.draw(axes, {"count": count // 2, "seed": seed})
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
    folder = ResultsFolder(str(tmp_path))
    (one, *_) = grid.expand(sweeps.expanded(yaml.safe_load(CONFIG))).selections.values()
    paths = {}
    for label, scores in inner.items():
        paths[label] = [f"{label}{place}" for place in range(len(scores))]
        for path, score in zip(paths[label], scores, strict=True):
            Path(folder.run(path)).mkdir(parents=True)
            record = {"scores": {"accuracy": score}, "cpu_seconds": 1.5, "epochs": [{}, {}]}
            write_json(folder.metrics(path), record)

    def choose(labels):
        outer = dict.fromkeys(labels, next(iter(one.outer.values())))
        asked = dataclasses.replace(one, inner={k: paths[k] for k in labels}, outer=outer)
        return choosing.choose(asked, folder)

    assert choose(inner) == "first"
    found = folder.choice_made(one.path)
    assert found["chosen"] == "first"
    assert found["candidates"]["lost"]["mean"] is None
    expected = {"scores": [0.5, 0.7], "mean": 0.6, "epochs": 2, "core_seconds": 3.0}
    assert found["candidates"]["first"] == expected
    with pytest.raises(ValueError, match="diverged, or have no accuracy: lost"):
        choose(["lost"])


def test_the_best_candidate_has_the_least_of_a_loss_and_the_first_counts_of_equal_ones():
    means = {"a": 0.2, "b": 0.1, "c": None, "d": 0.1}
    candidates = {label: {"mean": mean} for label, mean in means.items()}
    assert choosing.best(candidates, "log_loss") == "b"
    assert choosing.best(candidates, "accuracy") == "a"


def test_a_candidate_has_as_many_epochs_as_the_longest_of_its_runs():
    runs = [
        {"scores": {"accuracy": 0.5}, "cpu_seconds": 1.0, "epochs": [{}] * count}
        for count in (2, 5, 3)
    ]
    assert choosing._scored(runs, "accuracy")["epochs"] == 5


def test_the_held_out_part_has_no_say():
    """An inner run neither trains on nor scores what the final run is scored on."""
    table = grid.expand(sweeps.expanded(yaml.safe_load(CONFIG)))
    assert len(table.selections) == OUTER
    labels = load_digits().target
    assignable = folds.Assignable(labels)
    facts = Facts(len(labels), 0, ())
    for selected in table.selections.values():
        outer = list(selected.outer.values())
        (held_out,) = {
            tuple(folds.split(facts, folds.of_run(run, assignable), run.held_out_fold, None, 0)[1])
            for run in outer
        }
        for path in [path for paths in selected.inner.values() for path in paths]:
            run = table.runs[path]
            parts = folds.split(facts, folds.of_run(run, assignable), run.held_out_fold, None, 0)
            assert not set(held_out) & set(np.concatenate(parts))
    assert json.loads(outer[0].to_json()).keys() == json.loads(run.to_json()).keys() - {
        "inner_folds",
        "inner_fold",
    }


DIVERGING = """
models:
  mlp:
    {hidden: [8], batch_size: 16, epochs: 2, optimizer: {name: sgd, lr: [0.001, 0.1]}}
datasets:
  tiny: {name: fake, count: 100, test: 0, size: 8, classes: 3}
studies:
  nested: {datasets: [tiny], folds: 2, models: [mlp], select: 2}
runs_per_job: 1
"""


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    project = copy(tmp_path_factory.mktemp("chosen"))
    project.config.write_text(DIVERGING)
    project.call()
    return project


@pytest.mark.parametrize("how", ["gone", "cut", "edited"])
def test_a_choice_that_is_not_what_was_chosen_is_made_again(chosen, how):
    (file, _) = sorted((chosen.results / "selections").rglob("nall_seed0.json"))
    whole = file.read_text()
    file.unlink()
    if how != "gone":
        file.write_text(whole[:100] if how == "cut" else whole.replace("lr0.1", "lr0.001"))
    assert chosen.planned()["train"] == 1
    assert chosen.planned("--forcerun", "train")["train"] > 1
    file.write_text(whole)
    assert chosen.planned() == {}


def test_a_lost_inner_run_is_trained_and_chosen_by_again(chosen, tmp_path):
    project = chosen.copied(tmp_path / "copy")
    next(file for file in project.results.rglob("metrics.json") if "_inner" in str(file)).unlink()
    weights = {file: file.stat().st_mtime_ns for file in project.results.rglob("weights.pt")}
    assert project.planned()["train"] == 2
    assert "2 runs trained" in project.call()
    assert project.planned() == {}
    # The choice is the same, so what was chosen is not trained again, unless that is asked for.
    assert weights == {file: file.stat().st_mtime_ns for file in weights}
    project.call("--forcerun", "train")
    assert all(weights[file] != file.stat().st_mtime_ns for file in weights)


def test_a_report_does_without_a_run_that_is_not_there(chosen, tmp_path, monkeypatch):
    project = chosen.copied(tmp_path / "copy")
    monkeypatch.chdir(project.folder)
    folder = ResultsFolder("results/mine")
    config = sweeps.expanded(settings.with_defaults(yaml.safe_load(DIVERGING)))
    table = grid.expand(config)
    (first, _) = table.selections
    Path(folder.metrics(first)).unlink()
    study = Study(config, UpToDateCheck(folder, table).table_of_these(), folder, "nested")
    writing.write(study, "snakemake", lambda _: pd.DataFrame(columns=["importance"]))
    missing = pd.read_csv(folder.csv("nested", "missing"))
    assert list(missing["run"]) == [first]
    assert len(pd.read_csv(folder.csv("nested", "runs"))) == 1


@pytest.mark.parametrize("per_job", [1, 9])
def test_it_is_told_when_all_candidates_diverge(tmp_path, per_job):
    project = copy(tmp_path)
    config = DIVERGING.replace("[0.001, 0.1]", "[1.0e+29, 1.0e+30]")
    project.config.write_text(config.replace("per_job: 1", f"per_job: {per_job}"))
    said = project.call(expect=1)
    assert "all candidates diverged, or have no accuracy: mlp-lr1e_29, mlp-lr1e_30" in said
    assert "Traceback" not in said
