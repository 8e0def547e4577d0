"""Arguments of calls from Python: what cannot be meant is told, estimators become entries."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import loguniform
from sklearn.base import TransformerMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import KFold, RandomizedSearchCV, RepeatedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_cross_validate import MLP, SGD, rows

from allcores.files import sha256_of
from allcores_study import cross_validate, programs
from allcores_study.interactive import cross_validate as cross_validate_module
from allcores_study.interactive import pickled, settings

TWICE = rows().astype({"sex": "category"}).set_axis(["1", 1, "ward", "ill"], axis="columns")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


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
        ({"data": TWICE}, "data: has the column 1 twice"),
        ({"data": 3}, "data: found a int; expected a DataFrame, two arrays"),
        (
            {"data": (np.full((48, 2), np.nan), np.arange(48) % 2), "target": None},
            r"^data: inputs\[0, 0\] is nan; expected finite numbers",
        ),
        ({"data": "own.csv"}, "data: found 'own.csv'; expected a DataFrame, as pandas reads it"),
        ({"target": ("a", "b")}, "target: found a tuple; expected a column's name"),
        ({"models": {("a",): SGD}}, r"models: found \('a',\); expected letters, digits"),
        ({"models": {"a/b": RandomForestClassifier()}}, "models: found 'a/b'; expected letters"),
        ({"metrics": [f1_score]}, "found 'sklearn.metrics:f1_score', which takes 2 values"),
        ({"metrics": 3}, "metrics: found 3; expected names or functions, in a list"),
        ({"metrics": [make_scorer(len)]}, r"metrics\[0\]: found a _Scorer; expected a function"),
        ({"schedules": 3}, "schedules: found 3; expected labels, or {label: entry}"),
        ({"profile": 5}, "profile: found 5; expected a name or a folder"),
        ({"profile": "none"}, "profile: found no none with a config.yaml"),
        ({"groups": np.arange(47)}, r"groups: found \(47,\); expected \(48,\)"),
        ({"cv": 5}, "cv: give `folds`: a number, an array or a splitter"),
        ({"scoring": "roc_auc"}, "scoring: give `metrics`"),
        ({"dataset": {"target": "sex"}}, "dataset.target: write the argument `target`"),
        ({"dataset": {"path": "x.csv"}}, "dataset.path: is set by `data`; remove it"),
        (
            {"data": "digits", "target": None, "dataset": {"name": "wine"}},
            "dataset.name: found 'wine', but data is 'digits'",
        ),
        ({"folds": np.zeros(48)}, "folds: found 1 of them; expected at least two"),
        ({"folds": RepeatedKFold(n_splits=2, random_state=0)}, "holds samples out more than once"),
        ({"data": "digits", "target": None, "folds": KFold(2)}, "folds: the name of a dataset"),
        ({"dataset": "regression"}, "dataset: found a str; expected a dict of settings"),
        ({"name": None}, "name: found None; expected letters"),
        ({"cores": True}, "cores: found True; expected a number"),
        ({"models": None}, "models: found a NoneType; expected {label: entry}"),
        ({"models": {"m": lambda: 0}}, "models.m: found a lambda; expected a function with a name"),
        ({"data": "digits"}, "target: has no meaning for the name of a dataset"),
        ({"models": {"mlp": torch.nn.Linear(1, 1)}}, "models.mlp: found a Linear; expected a dict"),
        (
            {"models": {"p": make_pipeline(type("P", (TransformerMixin,), {}))}},
            "models.p: cannot be pickled|models.p: has a part that is defined in this script",
        ),
        ({"models": {"p": type("P", (), {"__module__": "__main__"})}}, "%%writefile p.py"),
        ({"target": "height"}, "^data: ill.parquet: has no column 'height'; found 'age', 'sex'"),
        ({"foldz": 3}, r"^foldz: unknown key; known: .* \(did you mean folds\?\)$"),
    ],
)
def test_errors_name_the_argument(wrong, told):
    arguments = {"data": rows(), "models": {"mlp": {**MLP, "optimizer": SGD}}, "target": "ill"}
    with pytest.raises(ValueError, match=told):
        cross_validate(**arguments | {"name": "ill", "folds": 2, "cores": 2} | wrong)


def test_what_an_estimator_is_given_is_what_differs_from_its_defaults():
    forest = RandomForestClassifier(n_estimators=np.int64(7), max_depth=None, max_features="sqrt")
    assert settings.models({"forest": forest, "bare": RandomForestClassifier}, keep=None) == {
        "forest": {"import": "sklearn.ensemble:RandomForestClassifier", "n_estimators": 7},
        "bare": {"import": "sklearn.ensemble:RandomForestClassifier"},
    }


def test_the_packages_of_the_parts_of_an_estimator_belong_to_its_run(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "brought", set())
    content = pickled.content_of("it", make_pipeline(StandardScaler(), LogisticRegression()))
    (tmp_path / "it.pickle").write_bytes(content)
    pickled.estimator(str(tmp_path / "it.pickle"), sha256_of(content))
    assert "sklearn" in programs.brought


def test_strategies_for_a_cluster_may_need_more_cores_than_are_here(capsys):
    fitting = cross_validate_module._fitting(64, None)
    assert {"serial", "ddp", "parameter_server"} <= {*fitting}
    assert capsys.readouterr().out.startswith("left out: accelerator (needs a device);")


def test_an_estimator_is_the_same_file_whatever_happened_to_it():
    search = RandomizedSearchCV(LogisticRegression(), {"C": loguniform(0.1, 10)}, n_iter=2)
    given = {
        "search": search,
        "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
        "weights": LogisticRegression(class_weight={0: 1, 1: 2}),
        "function": KNeighborsClassifier(weights=np.square),
    }
    files = []
    for _ in range(2):
        found = settings.models(given, lambda label, content: Path(f"{label}.pkl"))
        files.append({label: entry["sha256"] for label, entry in found.items()})
        np.random.rand(7)
        given["pipeline"].fit(np.eye(4), [0, 1, 0, 1])
    assert files[0] == files[1]
