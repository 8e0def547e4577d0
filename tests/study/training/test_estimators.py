"""Estimators of scikit-learn: runs like any other, with the same samples and scores."""

import dataclasses
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
from conftest import same_weights, task_of, vary
from sklearn import ensemble, linear_model, naive_bayes, neighbors
from sklearn import metrics as sklearn_metrics
from test_multilabel import FRAME as LABELLED
from test_multilabel import LABELS
from test_several_numbers import FRAME, TARGETS, standardised

from allcores_study.analysis import collect, metrics
from allcores_study.config import checks, component, grid, registry, sweeps
from allcores_study.config.run import Entry
from allcores_study.data import storage
from allcores_study.planning import trials
from allcores_study.records import fingerprint, identity, run_files
from allcores_study.serving import samples
from allcores_study.serving.predictor import Predictor
from allcores_study.training import estimators, prepared

FOREST = "sklearn.ensemble:RandomForestClassifier"
ENTRY = {"import": FOREST, "n_estimators": 5}
CONFIG = {
    "models": {
        "mlp": {"batch_size": 8, "epochs": 1, "optimizer": {"name": "sgd", "lr": 0.1}},
        "forest": ENTRY,
    },
    "studies": {
        "first": {
            "datasets": ["breast_cancer"],
            "folds": 2,
            "models": ["mlp", "forest"],
            "schedules": ["cosine", "constant"],
            "strategies": ["serial", "ddp"],
            "workers": [1, 2],
        }
    },
}


def estimator_run(dataset, path, **options):
    """The Run of an estimator on the first of three folds."""
    fields = grid.training({"models": {"mine": {"import": path} | options}}, "mine", dataset)
    return vary(dataset=dataset, **fields, folds=3, fold=0, schedule=grid.NO_SCHEDULE, seed=3)


def table_of(file, frame, target, task):
    frame.to_csv(file, index=False)
    return Entry(file.stem, "table", {"path": str(file), "target": target, "task": task})


def in_float32(values, mine):
    """Standardised, then in float32: where a tree splits depends on the last bit."""
    values = values.astype(np.float64)
    mean, scale = values[mine].mean(axis=0), 1 / values[mine].std(axis=0)
    return ((values - mean) * scale).astype(np.float32)


def parts(laboratory):
    """Positions of the held-out samples and of the training samples, and the predictions."""
    frame = pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")
    held_out = frame["sample"].to_numpy()
    facts = storage.read_record(next((laboratory.folder / "data").iterdir())).content
    count = facts["train"] + facts["test"]
    return held_out, np.setdiff1d(np.arange(count), held_out), frame


def test_a_function_may_draw_the_numbers_with_which_it_builds(laboratory, monkeypatch):
    (laboratory.folder / "drawn.py").write_text(
        "import numpy as np\nfrom sklearn.ensemble import RandomForestClassifier\n\n"
        "IS_ESTIMATOR = True\n\n\ndef forest():\n"
        "    return RandomForestClassifier(3, random_state=np.random.randint(2**31))\n"
    )
    monkeypatch.syspath_prepend(laboratory.folder)
    run = estimator_run(Entry("wine", "wine", {}), "drawn:forest")
    (_, first), (_, second) = (laboratory.trained(run, name) for name in ("one", "two"))
    assert same_weights(first, second)


def test_classes_are_predicted_as_scikit_learn_does(laboratory):
    run = estimator_run(Entry("wine", "wine", {}), FOREST, n_estimators=20)
    found, _ = laboratory.trained(run)
    held_out, mine, frame = parts(laboratory)
    dataset = storage.open_dataset(laboratory.folder / "data" / "wine")
    inputs = in_float32(np.array(dataset.inputs), mine)
    forest = ensemble.RandomForestClassifier(n_estimators=20, random_state=3)
    forest.fit(inputs[mine], dataset.targets[mine])
    assert found["accuracy"] == pytest.approx(
        forest.score(inputs[held_out], dataset.targets[held_out])
    )
    chances = np.stack(frame["probabilities"])
    assert np.array_equal(chances, forest.predict_proba(inputs[held_out]))


def test_numbers_come_in_their_units(tmp_path, laboratory):
    entry = table_of(tmp_path / "both.csv", FRAME, TARGETS, "regression")
    found, _ = laboratory.trained(estimator_run(entry, "sklearn.linear_model:Ridge", alpha=0.5))
    held_out, mine, frame = parts(laboratory)
    inputs = standardised(FRAME[["a", "b", "c"]].to_numpy(), mine)
    targets = FRAME[TARGETS].to_numpy()
    centre, spread = targets[mine].mean(axis=0), targets[mine].std(axis=0)
    ridge = linear_model.Ridge(alpha=0.5).fit(inputs[mine], (targets[mine] - centre) / spread)
    expected = ridge.predict(inputs[held_out]) * spread + centre
    assert np.stack(frame["predicted"]) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert found["names"] == TARGETS


@pytest.mark.parametrize(
    ("path", "options", "make"),
    [
        (FOREST, {"n_estimators": 9}, ensemble.RandomForestClassifier),  # a list of arrays
        ("sklearn.neighbors:KNeighborsClassifier", {}, neighbors.KNeighborsClassifier),
    ],
)
def test_labels_are_predicted_as_scikit_learn_does(tmp_path, laboratory, path, options, make):
    entry = table_of(tmp_path / "labels.csv", LABELLED, LABELS, "multilabel")
    laboratory.trained(estimator_run(entry, path, **options))
    held_out, mine, frame = parts(laboratory)
    features = [name for name in LABELLED if name not in LABELS]
    inputs = in_float32(LABELLED[features].to_numpy(), mine)
    own = make(**options, **({"random_state": 3} if "n_estimators" in options else {}))
    own.fit(inputs[mine], LABELLED[LABELS].to_numpy(int)[mine])
    expected = np.stack([of[:, 1] for of in own.predict_proba(inputs[held_out])], axis=1)
    assert np.array_equal(np.stack(frame["probabilities"]), expected)


def test_a_class_or_label_that_no_training_sample_has_is_improbable():
    model = estimators.FittedEstimator(linear_model.LogisticRegression(), outputs=3)
    inputs = estimators.torch.randn(20, 2)
    model.fit(inputs, 2 * (inputs[:, 0] > 0).long().numpy())  # never 1
    chances = model(inputs)
    assert chances.shape == (20, 3)
    assert (chances[:, 1] == 0).all()
    model = estimators.FittedEstimator(ensemble.RandomForestClassifier(3), outputs=2)
    labels = np.stack([np.arange(20) % 2, np.ones(20)], axis=1)
    model.fit(inputs, labels)
    assert (model(inputs)[:, 1] == 1).all()


def test_what_is_planted_into_held_out_rows_changes_nothing(tmp_path, laboratory):
    weights, changed = [], FRAME.copy()
    for name in ("clean", "planted"):
        entry = table_of(tmp_path / f"{name}.csv", changed, "cost", "regression")
        run = estimator_run(entry, "sklearn.ensemble:RandomForestRegressor", n_estimators=3)
        weights.append(laboratory.trained(run, name)[1])
        frame = pd.read_parquet(laboratory.folder / name / "predictions.parquet")
        changed.loc[frame["sample"][:2], ["a", "cost"]] = 1e6
    assert same_weights(*weights)


def test_a_trained_one_predicts_new_samples(tmp_path, laboratory):
    entry = table_of(tmp_path / "both.csv", FRAME, "cost", "regression")
    run = estimator_run(entry, "sklearn.ensemble:HistGradientBoostingRegressor", max_iter=5)
    laboratory.trained(run)
    _, _, frame = parts(laboratory)
    predictor = Predictor(laboratory.folder / "run")
    new = samples.of(tmp_path / "both.csv", predictor)
    told = predictor.predictions(new.inputs)[frame["sample"], 0]
    assert np.array_equal(told, frame["predicted"])


def test_a_run_that_was_fitted_and_then_killed_is_not_fitted_again(laboratory, monkeypatch):
    run = estimator_run(Entry("wine", "wine", {}), FOREST, n_estimators=3)
    with monkeypatch.context() as patch:
        patch.setattr(prepared, "save_weights", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            laboratory.trained(run)
    monkeypatch.setattr(estimators.FittedEstimator, "fit", lambda *_: 1 / 0)
    found, _ = laboratory.trained(run)
    assert found["resumed"] == 1
    assert found["accuracy"] > 0.5


def test_seed_and_threads_are_the_runs(tmp_path, monkeypatch):
    (tmp_path / "pipes_of_mine.py").write_text(
        "from sklearn import decomposition, ensemble, pipeline\n"
        "IS_ESTIMATOR = True\n\n\n"
        "def pipe(kept):\n"
        "    forest = ensemble.RandomForestClassifier(random_state=7)\n"
        "    return pipeline.make_pipeline(decomposition.PCA(kept), forest)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    run = estimator_run(Entry("wine", "wine", {}), "pipes_of_mine:pipe", kept=2)
    run = dataclasses.replace(run, threads_per_worker=2)
    pipe = estimators.build(run, 3).estimator
    assert pipe.get_params()["pca__random_state"] == 3
    assert pipe.get_params()["randomforestclassifier__n_jobs"] == 2
    assert pipe.get_params()["randomforestclassifier__random_state"] == 7
    sys.modules.pop("pipes_of_mine")


def test_an_estimator_is_trained_once_by_one_process():
    of_forest = [run for run in grid.expand(CONFIG).of("first") if run.is_estimator]
    assert [run.path for run in of_forest] == [
        f"breast_cancer/forest/none/serial/w1t1/fold{fold}of2/nall_seed0" for fold in (0, 1)
    ]
    assert len(grid.expand(CONFIG).of("first")) == 2 + 2 * 2 * 3
    assert type(of_forest[0]).from_json(of_forest[0].to_json()) == of_forest[0]
    assert not checks.findings(CONFIG)


def test_none_in_a_list_of_values_is_swept_over():
    models = CONFIG["models"] | {"forest": ENTRY | {"max_depth": [2, None]}}
    swept = sweeps.expanded(CONFIG | {"models": models})
    assert [*swept["models"]] == ["mlp", "forest-max_depth2", "forest-max_depthNone"]


@pytest.mark.parametrize(
    ("change", "of_study", "said"),
    [
        ({"epochs": 3}, {}, "models.forest.epochs: has no meaning for an estimator"),
        ({"trees": 3}, {}, "models.forest.trees: unknown key; known: n_estimators"),
        ({"n_jobs": 3}, {}, "models.forest.n_jobs: is set by `threads_per_worker`"),
        ({"random_state": 3}, {}, "models.forest.random_state: is set by `seeds`"),
        ({}, {"strategies": ["ddp"]}, "not ddp; list serial first, or set `baseline: serial`"),
    ],
)
def test_what_has_no_meaning_is_refused(change, of_study, said):
    study = {k: v for k, v in (CONFIG["studies"]["first"] | of_study).items() if v is not None}
    models = CONFIG["models"] | {"forest": ENTRY | change}
    found = checks.findings({"models": models, "studies": {"first": study}})
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    ("path", "options", "problem"),
    [
        ("sklearn.ensemble:RandomForestRegressor", {}, "predicts numbers; the targets are classes"),
        ("sklearn.svm:LinearSVC", {}, "has no predict_proba"),
        (FOREST, {"max_depth": "deep"}, "The 'max_depth' parameter of RandomForestClassifier"),
    ],
)
def test_what_does_not_fit_is_found_in_a_trial(path, options, problem):
    run = estimator_run(Entry("wine", "wine", {}), path, **options)
    facts = registry.facts(run.dataset)
    said = trials.answer(run, facts.shape, task_of(facts))
    assert problem in said["problem"]
    assert said["place"] == ["models", "mine"]


@pytest.mark.parametrize(
    ("path", "is_estimator"),
    [
        (FOREST, True),
        ("sklearn.ensemble:HistGradientBoostingRegressor", True),
        ("sklearn.dummy:DummyClassifier", True),
        ("torch.nn:Linear", False),
        ("fit_and_forward:Net", False),
    ],
)
def test_an_estimator_is_known_by_its_methods(tmp_path, monkeypatch, path, is_estimator):
    text = "class Net:\n" + "".join(
        f"    def {name}(self):\n        pass\n" for name in ("fit", "predict", "forward")
    )
    (tmp_path / "fit_and_forward.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert component.is_estimator({"import": path}) == is_estimator


def test_its_package_identifies_a_run_and_its_code_only_that():
    forest, network = (
        next(run for run in grid.expand(CONFIG).of("first") if run.is_estimator == wanted)
        for wanted in (True, False)
    )
    assert identity.before_data(forest)["estimator"].startswith("scikit-learn 1")
    assert "estimator" not in identity.before_data(network)
    module = "allcores_study.training.estimators"
    assert module in fingerprint.files_of_run(forest)
    assert module not in fingerprint.files_of_run(network)
    assert "allcores_study.training.loop" not in fingerprint.files_of_run(forest)


def test_equal_probabilities_stay_equal_in_the_metrics(laboratory):
    path, options = "sklearn.neighbors:KNeighborsClassifier", {"n_neighbors": 5}
    for fold in range(3):
        run = dataclasses.replace(
            estimator_run(Entry("wine", "wine", {}), path, **options), fold=fold
        )
        laboratory.trained(run)
        held_out, mine, _ = parts(laboratory)
        dataset = storage.open_dataset(laboratory.folder / "data" / "wine")
        inputs = in_float32(np.array(dataset.inputs), mine)
        own = neighbors.KNeighborsClassifier(**options).fit(inputs[mine], dataset.targets[mine])
        chances, true = own.predict_proba(inputs[held_out]), dataset.targets[held_out]
        files = laboratory.folder / "run"
        names = ("roc_auc", "log_loss")
        measured = metrics.measured(
            run_files.metrics(files), files, [metrics.Metric.of(name) for name in names]
        )
        assert measured["roc_auc"] == pytest.approx(
            sklearn_metrics.roc_auc_score(true, chances, multi_class="ovr"), abs=1e-12
        )
        expected = sklearn_metrics.log_loss(true, chances)
        assert measured["log_loss"] == pytest.approx(expected, rel=1e-5)
        shutil.rmtree(laboratory.folder / "run")


def test_what_needs_more_samples_than_a_trial_has_is_tried_with_more():
    path = "sklearn.neighbors:KNeighborsClassifier"
    run = estimator_run(Entry("wine", "wine", {}), path, n_neighbors=250)
    facts = registry.facts(run.dataset)
    assert trials.tried_out(run, facts.shape, task_of(facts))["seconds"] > 0


CONFIDENT = [
    ("sklearn.naive_bayes:GaussianNB", {}, naive_bayes.GaussianNB),
    ("sklearn.linear_model:LogisticRegression", {"C": 1e5}, linear_model.LogisticRegression),
]


@pytest.mark.parametrize(("path", "options", "make"), CONFIDENT)
def test_ranks_of_confident_estimators_are_scikit_learns(laboratory, path, options, make):
    run = estimator_run(Entry("breast_cancer", "breast_cancer", {}), path, **options)
    laboratory.trained(run)
    held_out, mine, _ = parts(laboratory)
    dataset = storage.open_dataset(laboratory.folder / "data" / "breast_cancer")
    inputs = in_float32(np.array(dataset.inputs), mine)
    own = make(**options).fit(inputs[mine], dataset.targets[mine])
    chances, true = own.predict_proba(inputs[held_out]), dataset.targets[held_out]
    files = laboratory.folder / "run"
    names = ("roc_auc", "pr_auc", "log_loss")
    measured = metrics.measured(
        run_files.metrics(files), files, [metrics.Metric.of(name) for name in names]
    )
    assert measured["roc_auc"] == sklearn_metrics.roc_auc_score(true, chances[:, 1])
    assert measured["pr_auc"] == sklearn_metrics.average_precision_score(true, chances[:, 1])
    assert measured["log_loss"] == sklearn_metrics.log_loss(true, chances)


def test_estimators_of_different_precision_stand_in_one_table(tmp_path, laboratory):
    pairs, rows, logistic = [], [], "sklearn.linear_model:LogisticRegression"
    for name, path in ("forest", FOREST), ("logistic", logistic):
        laboratory.trained(estimator_run(Entry("wine", "wine", {}), path), name)
        files = laboratory.folder / name
        pairs.append((run_files.metrics(files), files))
        rows.append(metrics.probabilities(metrics.predictions(*pairs[-1])))
    assert {str(chances.dtype) for chances in rows} == {"float32", "float64"}
    for order in (1, -1):
        collect.predictions_of_all(pairs[::order]).to_parquet(file := tmp_path / "all.parquet")
        kept = np.stack(pd.read_parquet(file)["probabilities"])
        assert np.array_equal(kept, np.concatenate(rows[::order]))


class Ridge(linear_model.Ridge):
    """That has no number for a row."""

    def fit(self, inputs, targets):
        return super().fit(inputs, targets)

    def predict(self, inputs):
        return np.where(np.arange(len(inputs)) == 3, np.nan, super().predict(inputs))


def test_a_regressor_without_a_number_for_a_row_has_diverged(tmp_path, laboratory):
    entry = table_of(tmp_path / "one.csv", FRAME, "cost", "regression")
    found, _ = laboratory.trained(estimator_run(entry, "test_estimators:Ridge"))
    assert found["diverged"] and found["r2"] is None
