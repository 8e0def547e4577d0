"""Final models: the cross-validated procedure, once on all samples."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import ROOT
from project import copy
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from test_sweeps import INNER, PIXELS, RATES, SEED, Net

from allcores_study.data.batches import Batches
from allcores_study.records import run_files
from allcores_study.serving.model import Model

CONFIG = """
models:
  mlp: {batch_size: 32, epochs: 2, hidden: [16], optimizer: {name: adam, lr: [0.0003, 0.003, 0.03]}}
  forest: {import: "sklearn.ensemble:RandomForestClassifier", n_estimators: 5}
studies:
  nested: {datasets: [digits], folds: 2, models: [mlp, forest], select: 2}
precision: fp32
memory_format: contiguous
"""
LABELS = load_digits().target


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A study that had no final models at first."""
    project = copy(tmp_path_factory.mktemp("final"))
    project.config.write_text(CONFIG)
    project.call("--omit-from", "report_nested")
    of_folds = len(run_files.below(project.results / "runs"))
    project.edit("mine.yaml", "select: 2}", "select: 2, final: true}")
    output = project.call()
    # The inner runs of all samples and the two final runs; nothing of the folds.
    assert f"{len(RATES) * INNER + 2} runs trained" in output
    assert "Final models of nested: results/mine/studies/nested/final/models.json" in output
    assert len(run_files.below(project.results / "runs")) == of_folds + len(RATES) * INNER + 2
    assert project.planned() == {}
    assert len(pd.read_csv(project.results / "studies/nested/runs.csv")) == 2 * 2
    return project


def listed(project, study="nested"):
    file = project.results / "studies" / study / "final/models.json"
    return json.loads(file.read_text())["models"]


def test_the_final_network_is_a_refit_by_plain_torch_of_the_choice_of_scikit_learn(trained):
    inner = StratifiedKFold(INNER, shuffle=True, random_state=SEED)
    search = GridSearchCV(Net(), {"batch_size": [32], "lr": RATES}, cv=inner)
    search.fit(np.arange(len(LABELS)), LABELS)
    entry = next(entry for entry in listed(trained) if entry["model"] == "mlp")
    assert entry["chosen"]["candidate"] == f"mlp-lr{search.best_params_['lr']}"
    means = [found["mean"] for found in entry["chosen"]["candidates"].values()]
    assert means == pytest.approx(search.cv_results_["mean_test_score"], abs=2e-3)
    assert entry["train_samples"] == len(LABELS)
    (predictor,) = Model.of(trained.results / "studies/nested", "mlp").predictors
    ours = list(predictor.model.state_dict().values())
    theirs = list(search.best_estimator_.net_.state_dict().values())
    for weight, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(weight, expected, rtol=1e-5, atol=1e-5)


def test_the_final_forest_is_that_of_scikit_learn(trained):
    pixels = torch.from_numpy(PIXELS * 255).to(torch.uint8).numpy()
    (predictor,) = Model.of(trained.results / "studies/nested", "forest").predictors
    source = Batches(pixels, predictor.scaling.mean, predictor.scaling.std)
    rows = source.plain(np.arange(len(pixels))).flatten(1).numpy()
    forest = RandomForestClassifier(n_estimators=5, random_state=SEED).fit(rows, LABELS)
    np.testing.assert_array_equal(predictor.predictions(pixels), forest.predict_proba(rows))


def test_what_to_expect_is_the_score_of_the_cross_validation(trained):
    runs = pd.read_csv(trained.results / "studies/nested/runs.csv")
    means = runs.groupby("model")["score"].mean()
    for entry in listed(trained):
        assert entry["expected"]["score"] == pytest.approx(means[entry["model"]])
        assert entry["expected"]["low_95"] <= means[entry["model"]] <= entry["expected"]["high_95"]
        assert entry["expected"]["runs"] == 2
    assert listed(trained)[0]["model"] == means.idxmax()  # the best first


def test_predict_uses_the_final_model(trained, tmp_path):
    study = trained.results / "studies" / "nested"
    np.save(tmp_path / "new.npy", np.load(trained.results / "data" / "digits" / "inputs.npy"))
    program = [sys.executable, ROOT / "scripts" / "predict.py", study, tmp_path / "new.npy"]
    flags = ["--model", "mlp", "--output", tmp_path / "final.csv"]
    done = subprocess.run([*program, *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "final/digits/mlp/constant" in done.stdout
    predicted = pd.read_csv(tmp_path / "final.csv")["predicted"]
    assert (predicted == LABELS).mean() > 0.9
    assert Model.of(study).predictors[0].run.model.label == listed(trained)[0]["model"]
    with pytest.raises(ValueError, match=r"has no lenet; found \w+ of digits, \w+ of digits"):
        Model.of(study, "lenet")


def test_a_damaged_final_models_is_gathered_again_and_nothing_is_trained(trained, tmp_path):
    project = trained.copied(tmp_path / "copy")
    place = project.results / "studies/nested/final/digits/forest/none"
    content = (place / "weights.pt").read_bytes()
    (place / "weights.pt").write_bytes(content[:-1])
    assert project.planned()["report_nested"] == 1
    assert "0 runs trained" in project.call()
    assert (place / "weights.pt").read_bytes() == content


def test_a_data_sets_own_test_set_stays_out_and_what_diverged_is_last(tmp_path):
    project = copy(tmp_path)
    project.config.write_text("""
models:
  mlp: {batch_size: 8, epochs: 1, hidden: [4], optimizer: {name: sgd, lr: [1.0e+30, 0.1, 0.01]}}
datasets: {made: {name: fake, count: 40, test: 20, size: 8, classes: 2}}
studies:
  one:
    {datasets: [made], folds: test, models: [mlp], seeds: [3, 4], train_sizes: [10, 40],
     final: true}
""")
    project.call()
    *good, last = listed(project, "one")
    # Without `select`, each candidate is a model.
    assert {entry["model"] for entry in good} == {"mlp-lr0.1", "mlp-lr0.01"}
    assert {entry["train_samples"] for entry in [*good, last]} == {40}
    assert {entry["expected"]["runs"] for entry in good} == {2}  # of 40 samples alone
    assert last["model"] == "mlp-lr1e_30"
    assert last["expected"] == {"score": None, "low_95": None, "high_95": None, "runs": 2}
    assert [entry["diverged"] for entry in [*good, last]] == [False, False, True]
    with pytest.raises(ValueError, match=r"has no mlp; found mlp-lr0"):
        Model.of(project.results / "studies/one", "mlp")
    (predictor,) = Model.of(project.results / "studies/one").predictors
    assert (predictor.run.seed, predictor.run.model.label) == (3, good[0]["model"])
