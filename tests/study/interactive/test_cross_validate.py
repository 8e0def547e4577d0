"""Studies from Python: the same results as by YAML, resumed alike, errors that name arguments."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from conftest import ROOT
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from allcores_study import Model, compare_strategies, cross_validate
from allcores_study.interactive import settings, workflow

MLP = {"hidden": [4], "batch_size": 8, "epochs": 2}
SGD = {"name": "sgd", "lr": 0.1}
NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, shape, classes, units=4):
        super().__init__(nn.Flatten(), nn.Linear(shape[0], units), nn.Linear(units, classes))
"""
FAULT = """
    def forward(self, inputs):
        assert len(inputs) < 9, "too many"
        return super().forward(inputs)
"""
PIPELINE = """
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

IS_ESTIMATOR = True

def scaled():
    return make_pipeline(StandardScaler(), LogisticRegression())
"""
BY_HAND = """
datasets: {ill: {name: table, path: ill.csv, target: ill, groups: ward}}
models:
  mlp: {hidden: [4], batch_size: 8, epochs: 2, optimizer: {name: sgd, lr: [0.1, 0.01]}}
  forest: {import: "sklearn.ensemble:RandomForestClassifier", n_estimators: 7}
studies:
  ill: {datasets: [ill], folds: 2, models: [mlp, forest], select: 2, metrics: [roc_auc]}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(count=48):
    """A table with numbers, texts, groups and a target that depends on them."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"age": draw.normal(50, 9, count), "sex": draw.choice(["f", "m"], count)})
    return frame.assign(
        ward=np.arange(count) % 6, ill=np.where(frame["age"] + draw.normal(0, 5, count) > 50, 1, 0)
    )


def snakemake(*arguments):
    command = [sys.executable, "-m", "snakemake", "-s", ROOT / "workflow/Snakefile", "--cores", "2"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True)


def study_of_ill(**more):
    models = {
        "mlp": {**MLP, "optimizer": {"name": "sgd", "lr": [0.1, 0.01]}},
        "forest": RandomForestClassifier(n_estimators=7),
    }
    arguments = {"target": "ill", "groups": "ward", "folds": 2, "select": 2, "cores": 2}
    return cross_validate(rows(), models, name="ill", metrics=["roc_auc"], **arguments | more)


def test_a_study_is_that_of_yaml_to_the_bit_and_the_same_call_trains_nothing(here):
    result = study_of_ill()
    by_hand = here / "by_hand"
    by_hand.mkdir()
    rows().to_csv(by_hand / "ill.csv", index=False)
    (by_hand / "ill.yaml").write_text(BY_HAND)
    os.chdir(by_hand)
    done = snakemake("--configfile", "ill.yaml")
    assert done.returncode == 0, done.stderr
    expected = pd.read_parquet("results/ill/studies/ill/predictions.parquet")
    pd.testing.assert_frame_equal(result.predictions, expected)
    of_yaml = pd.read_csv("results/ill/studies/ill/models_table.csv")
    pd.testing.assert_frame_equal(result.table, of_yaml)
    os.chdir(here)
    assert yaml.safe_load(Path("ill.yaml").read_text())["studies"] == {
        "ill": yaml.safe_load(BY_HAND)["studies"]["ill"]
    }
    again = snakemake("-n", "--configfile", "ill.yaml")
    assert "Nothing to be done" in again.stdout + again.stderr
    before = {file: file.stat().st_mtime_ns for file in here.rglob("*.parquet")}
    assert repr(study_of_ill()) == repr(result)
    assert before == {file: file.stat().st_mtime_ns for file in here.rglob("*.parquet")}
    study_of_ill(seeds=[0, 1])  # trains only the other seed
    assert len(result.runs) == 8


def test_a_result_shows_answer_figure_and_table_and_predicts(here):
    result = study_of_ill()
    assert "scored best: ROC AUC" in result.answer
    assert result.answer in repr(result)
    shown = result._repr_html_()
    assert "<svg" in shown and "<table" in shown and "scored best" in shown
    assert result.figure("accuracy").width > 100
    with pytest.raises(ValueError, match="no figure 'nothing'; found accuracy"):
        result.figure("nothing")
    assert result.report.exists()
    new = rows().drop(columns="ill").set_index(np.arange(100, 148))
    chances = result.model("mlp").predict_proba(new)
    assert list(chances) == ["0", "1"] and list(chances.index) == list(new.index)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-6)
    assert result.model("mlp").predict(new).dtype == "int64"
    assert (result.model("mlp").predict(new) == chances.idxmax(axis=1).astype(int)).all()
    also = new.assign(other=[object()] * len(new))
    assert (result.model("mlp").predict(also) == result.model("mlp").predict(new)).all()
    with pytest.raises(ValueError, match=r"^data: .*age"):
        result.model("mlp").predict(new.drop(columns="age"))
    with pytest.raises(ValueError, match="data: found a Series; expected a DataFrame"):
        result.model("mlp").predict(new["age"])
    best = result.table.sort_values("score")["model"].iloc[-1] if "score" in result.table else None
    assert best is None or result.model().predictors[0].run.model.label == best
    assert isinstance(result.model("forest"), Model)
    assert len(result.model("forest").predictors) == 2
    study_of_ill(folds=3)
    assert len(result.model("forest").predictors) == 3  # not also those of two folds


def test_a_final_model_stays_until_a_call_ends_it(here):
    result = study_of_ill()
    assert not result.model("mlp").predictors[0].run.final
    model = result.fit("mlp")
    assert model.predictors[0].run.final
    assert yaml.safe_load(Path("ill.yaml").read_text())["studies"]["ill"]["final"]
    assert study_of_ill().model("mlp").predictors[0].run.final
    assert not study_of_ill(final=False).model("mlp").predictors[0].run.final
    os.chdir(here.parent)
    with pytest.raises(ValueError, match="is not in the working directory"):
        result.fit("mlp")


def test_arrays_tensors_and_classes_of_ones_own(here, monkeypatch):
    Path("net.py").write_text(NET)
    monkeypatch.syspath_prepend(here)
    from net import Net

    inputs = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
    labels = (inputs[:, 0] > 0).astype(int)
    models = {"net": {"name": Net, "units": 2, "batch_size": 8, "epochs": 1, "optimizer": SGD}}
    of_arrays = cross_validate((inputs, labels), models, name="one", folds=2, cores=2)
    data = torch.utils.data.TensorDataset(torch.tensor(inputs), torch.tensor(labels))
    of_tensors = cross_validate(data, models, name="two", folds=2, cores=2)
    kept = ["sample", "predicted"]
    assert of_arrays.predictions[kept].equals(of_tensors.predictions[kept])
    assert len(of_arrays.model().predict(inputs)) == 24
    speed = compare_strategies(
        models["net"], "breast_cancer", name="fast", strategies=["serial", "ddp"], cores=2
    )
    assert list(speed.table["workers"]) == [1, 1, 2]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"name": "a/b"}, "name: found 'a/b'; expected letters"),
        ({"name": "default"}, "results would lie in results/default"),
        ({"cores": 0}, "cores: found 0; expected a number from 1, or 'all'"),
        ({"models": ["mlp"]}, "models: found a list; expected {label: entry}"),
        ({"datasets": {}}, "datasets: this call makes one study of one dataset; give `data`"),
        ({"schedules": "cosin"}, "^schedules.0: unknown schedule 'cosin'"),
        ({"target": None}, "target: expected the column of the DataFrame to predict; found none"),
        ({"data": 3}, "data: found a int; expected a DataFrame, two arrays"),
        (
            {"data": (np.full((48, 2), np.nan), np.arange(48) % 2), "target": None},
            r"^data: inputs\[0, 0\] is nan; expected finite numbers",
        ),
        ({"data": "own.csv"}, "data: found 'own.csv'; expected a DataFrame, as pandas reads it"),
        ({"target": ("a", "b")}, "target: found a tuple; expected a column's name"),
        ({"groups": np.arange(48)}, "groups: found a ndarray; expected a column's name"),
        ({"dataset": "regression"}, "dataset: found a str; expected a dict of settings"),
        ({"name": None}, "name: found None; expected letters"),
        ({"cores": True}, "cores: found True; expected a number"),
        ({"models": None}, "models: found a NoneType; expected {label: entry}"),
        ({"models": {"m": lambda: 0}}, "models.m: found a lambda; expected a function with a name"),
        (
            {"models": {"c": LogisticRegressionCV(Cs=[0.1, 1])}},
            "models.c.Cs: .* sweep; write a",
        ),
        ({"data": "digits"}, "target: has no meaning for a built-in dataset"),
        ({"models": {"mlp": torch.nn.Linear(1, 1)}}, "models.mlp: found a Linear; expected a dict"),
        ({"models": {"p": make_pipeline(StandardScaler())}}, "models.p.steps: found a list, which"),
        ({"models": {"p": type("P", (), {"__module__": "__main__"})}}, "%%writefile p.py"),
        ({"target": "height"}, "^data: ill.parquet: has no column 'height'; found 'age', 'sex'"),
        ({"foldz": 3}, r"^foldz: unknown key; known: .* \(did you mean folds\?\)$"),
        (
            {"models": {"mlp": {**MLP, "optimizer": {"name": "sgd", "lr": "fast"}}}},
            "^models.mlp.opti",
        ),
        ({"folds": 30}, "^folds: found 30; .*at most"),
    ],
)
def test_errors_name_the_argument(wrong, told):
    arguments = {"data": rows(), "models": {"mlp": {**MLP, "optimizer": SGD}}, "target": "ill"}
    with pytest.raises(ValueError, match=told):
        cross_validate(**arguments | {"name": "ill", "folds": 2, "cores": 2} | wrong)


def test_a_config_that_a_person_wrote_stays():
    Path("ill.yaml").write_text(BY_HAND)
    with pytest.raises(ValueError, match=r"name: .* was not written from Python"):
        study_of_ill()
    assert Path("ill.yaml").read_text() == BY_HAND


def test_data_that_a_person_saved_stay():
    rows().to_parquet("ill.parquet")
    content = Path("ill.parquet").read_bytes()
    arrays = np.zeros((8, 1)), np.arange(8) % 2
    cross_validate(arrays, {"mlp": {**MLP, "optimizer": SGD}}, name="ill", folds=2, cores=2)
    # There is a config by now, but of other data.
    with pytest.raises(ValueError, match=r"name: ill.parquet exists and was not written from"):
        study_of_ill()
    assert Path("ill.parquet").read_bytes() == content


def test_estimators_of_ones_own_in_a_folder_called_config(here, monkeypatch):
    folder = here / "config" / "inner"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    Path("mine.py").write_text(PIPELINE)
    monkeypatch.syspath_prepend(folder)
    import mine

    boosting = GradientBoostingClassifier(n_estimators=2, loss="exponential", random_state=7)
    models = {"pipeline": mine.scaled, "boosting": boosting}
    result = cross_validate(rows(), models, target="ill", name="ill", folds=2, cores=2)
    assert set(result.table["model"]) == {"pipeline", "boosting"}


def test_a_killed_process_leaves_no_lock(here):
    Path("long.py").write_text(LONG)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    process = subprocess.Popen([sys.executable, "long.py"], env=environment)
    results = here / "results" / "long"
    while process.poll() is None and not any(results.rglob("latest.allcores")):
        time.sleep(0.2)
    process.kill()
    process.wait()
    model = {"hidden": [8], "batch_size": 512, "epochs": 1, "optimizer": SGD}
    assert len(cross_validate("digits", {"mlp": model}, name="long", folds=2, cores=2).runs) == 2


def test_a_run_that_fails_says_why(here, monkeypatch):
    Path("faulty.py").write_text(f"{NET}{FAULT}")
    monkeypatch.syspath_prepend(here)
    from faulty import Net

    frame = rows().drop(columns="sex")
    with pytest.raises(workflow.StudyError, match=r"(?s)the study ill failed:.*too many"):
        cross_validate(frame, {"net": Net}, target="ill", name="ill", folds=2, cores=2)


def test_what_an_estimator_is_given_is_what_differs_from_its_defaults():
    forest = RandomForestClassifier(n_estimators=np.int64(7), max_depth=None, max_features="sqrt")
    assert settings.entries("models", {"forest": forest, "bare": RandomForestClassifier}) == {
        "forest": {"import": "sklearn.ensemble:RandomForestClassifier", "n_estimators": 7},
        "bare": {"import": "sklearn.ensemble:RandomForestClassifier"},
    }


LONG = """
import sys
from allcores_study import cross_validate

model = dict(hidden=[8], batch_size=1, epochs=2000, optimizer=dict(name="sgd", lr=0.01))
cross_validate("digits", {"mlp": model}, name="long", folds=2, cores=2)
"""


def test_ctrl_c_stops_the_runs_and_the_same_call_continues(here):
    Path("long.py").write_text(LONG)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    process = subprocess.Popen(
        [sys.executable, "long.py"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    results = here / "results" / "long"
    while process.poll() is None and not any(results.rglob("latest.allcores")):
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert "stopped; the same call continues" in told
    left = subprocess.run(["pgrep", "-f", str(here)], capture_output=True, text=True).stdout.split()
    assert not left
