"""Studies from Python: the same results as by YAML, resumed alike, errors that name arguments."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import patience
import psutil
import pytest
import yaml
from conftest import ROOT
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibrationDisplay
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from allcores_study import Model, compare_strategies, cross_validate
from allcores_study.campaign import warm_start
from allcores_study.interactive import workflow
from allcores_study.interactive.result import Result

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

def share_of_yes(true, predicted, probabilities):
    return (predicted == 1).mean()
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
def here(tmp_path, monkeypatch, warm_calls):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def made(tmp_path_factory, warm_calls):
    """A folder in which the study of ill was made."""
    folder = tmp_path_factory.mktemp("made")
    os.chdir(folder)
    study_of_ill()
    return folder


@pytest.fixture
def result(made, here):
    """The result of that study, in a copy of its folder."""
    shutil.copytree(made, here, dirs_exist_ok=True)
    return Result("ill")


def rows(count=48):
    """A table with numbers, texts, groups and a target that depends on them."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"age": draw.normal(50, 9, count), "sex": draw.choice(["f", "m"], count)})
    return frame.assign(
        ward=np.arange(count) % 6, ill=np.where(frame["age"] + draw.normal(0, 5, count) > 50, 1, 0)
    )


def snakemake(*arguments):
    flags = ["-s", ROOT / "workflow/Snakefile", "--cores", "2"]
    return subprocess.run([*workflow.SNAKEMAKE, *flags, *arguments], capture_output=True, text=True)


def study_of_ill(**more):
    models = {
        "mlp": {**MLP, "optimizer": {"name": "sgd", "lr": [0.1, 0.01]}},
        "forest": RandomForestClassifier(n_estimators=7),
    }
    arguments = {"target": "ill", "groups": "ward", "folds": 2, "select": 2, "cores": 2}
    return cross_validate(rows(), models, name="ill", metrics=["roc_auc"], **arguments | more)


def test_a_study_is_that_of_yaml_to_the_bit_and_the_same_call_trains_nothing(here, result):
    by_hand = here / "by_hand"
    by_hand.mkdir()
    rows().to_csv(by_hand / "ill.csv", index=False)
    (by_hand / "ill.yaml").write_text(BY_HAND)
    os.chdir(by_hand)
    done = snakemake("--configfile", "ill.yaml")
    assert done.returncode == 0, done.stderr
    expected = pd.read_parquet("results/ill/studies/ill/predictions.parquet")
    classes = ["true_class", "predicted_class"]
    pd.testing.assert_frame_equal(result.predictions.drop(columns=classes), expected)
    of_yaml = pd.read_csv("results/ill/studies/ill/models_table.csv")
    pd.testing.assert_frame_equal(result.table, of_yaml)
    os.chdir(here)
    assert yaml.safe_load(Path("ill.yaml").read_text())["studies"] == {
        "ill": yaml.safe_load(BY_HAND)["studies"]["ill"]
    }
    before = {file: file.stat().st_mtime_ns for file in here.rglob("*.parquet")}
    assert repr(study_of_ill()) == repr(result)
    assert before == {file: file.stat().st_mtime_ns for file in here.rglob("*.parquet")}


def test_a_result_shows_answer_figure_and_table_and_predicts(result):
    assert "scored best: ROC AUC" in result.answer
    assert repr(result).startswith("\n".join([result.answer, *result.notes, ""]))
    shown = result._repr_html_()
    assert "<svg" in shown and "<table" in shown and "scored best" in shown
    assert result.figure("accuracy").width > 100
    with pytest.raises(ValueError, match="no figure 'nothing'; found accuracy"):
        result.figure("nothing")
    assert result.report.exists()
    new = rows().drop(columns="ill").set_index(np.arange(100, 148))
    model = result.model("mlp")
    chances, predicted = model.predict_proba(new), model.predict(new)
    assert list(model.classes_) == [0, 1] and chances.shape == (48, 2)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-6)
    assert predicted.dtype == "int64" and predicted.index.equals(new.index)
    assert (predicted == chances.argmax(axis=1)).all()
    found = result.predictions
    assert (found["true_class"] == rows()["ill"].to_numpy()[found["sample"]]).all()
    also = new.assign(other=[object()] * len(new))
    assert (model.predict(also) == predicted).all()
    with pytest.raises(ValueError, match=r"^data: .*age"):
        model.predict(new.drop(columns="age"))
    with pytest.raises(ValueError, match="data: found a Series; expected a DataFrame"):
        model.predict(new["age"])
    assert isinstance(result.model("forest"), Model)
    assert len(result.model("forest").predictors) == 2


def test_a_model_is_an_estimator_of_scikit_learn(result):
    model, frame = result.model("mlp"), rows()
    new, true = frame[["age", "sex"]], frame["ill"]
    assert is_classifier(model) and list(model.feature_names_in_) == ["age", "sex"]
    assert model.score(new, true) == (model.predict(new) == true).mean()
    # As an array, as SHAP gives them.
    assert (model.predict_proba(new.to_numpy()) == model.predict_proba(new)).all()
    found = permutation_importance(model, new, true, n_repeats=2, random_state=0)
    assert found.importances.shape == (2, 2)
    shown = CalibrationDisplay.from_estimator(model, new, true, n_bins=3)
    assert shown.estimator_name == "Model"
    with pytest.raises(ValueError, match="data: found 3 columns; the model takes 2: age, sex"):
        model.predict(np.zeros((4, 3)))
    assert clone(model) is model


def test_a_call_starts_without_torch():
    code = "import sys; from allcores_study import cross_validate; sys.exit('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_a_result_that_a_later_call_replaced_says_so(result):
    study = Path("results/ill/studies/ill")
    shutil.copy(study / "made.json", "kept")
    (study / "made.json").write_text("{}")
    for use in ("runs", "table", "answer", "predictions"):
        with pytest.raises(ValueError, match="replaced by a later call of that name"):
            getattr(result, use)
    with pytest.raises(ValueError, match="replaced by a later call of that name"):
        result.fit("mlp")
    shutil.copy("kept", study / "made.json")
    assert len(result.runs) == 4


def test_two_calls_of_one_name_do_not_mix(result):
    before = Path("ill.yaml").read_bytes()
    with workflow.alone(Path("ill.yaml")):
        with pytest.raises(ValueError, match=r"name: another call of ill is running \(process "):
            study_of_ill(folds=3)
        with pytest.raises(ValueError, match="another call of ill is running"):
            result.fit("mlp")
    assert Path("ill.yaml").read_bytes() == before


def test_a_final_model_stays_until_a_call_ends_it(here, result):
    assert not result.model("mlp").predictors[0].run.final
    model = result.fit("mlp")
    assert model.predictors[0].run.final
    assert "scored best" in result.answer  # it is still that of this study
    assert yaml.safe_load(Path("ill.yaml").read_text())["studies"]["ill"]["final"]
    final = Path("results/ill/studies/ill/final")
    (final / "mine.txt").write_text("of the user")
    assert study_of_ill().model("mlp").predictors[0].run.final
    assert not study_of_ill(final=False).model("mlp").predictors[0].run.final
    # Only what was written is deleted.
    assert [file.name for file in final.rglob("*")] == ["mine.txt"]
    result = Result("ill")
    os.chdir(here.parent)
    with pytest.raises(ValueError, match="is not in the working directory"):
        result.fit("mlp")


def test_classes_of_ones_own_and_strategies_that_fit(here, monkeypatch, capsys):
    Path("net.py").write_text(NET)
    monkeypatch.syspath_prepend(here)
    from net import Net

    inputs = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
    labels = np.where(inputs[:, :1] > 0, "yes", "no")  # (n, 1)
    model = {"name": Net, "units": 2, "batch_size": 8, "epochs": 1, "optimizer": SGD}
    speed = compare_strategies(model, (inputs, labels), name="fast", workers=[1], cores=1)
    assert "left out: accelerator (needs a device), async_parameter_server (2 c" in (
        capsys.readouterr().out
    )
    assert {"serial", "ddp", "hogwild"} <= set(speed.table["strategy"])
    assert "parameter_server" not in set(speed.table["strategy"])
    assert "serial" in speed.answer  # with which the others are compared
    with pytest.raises(ValueError, match="workers: found 4; this call has 1 cores"):
        compare_strategies(model, (inputs, labels), name="fast", workers=4, cores=1)
    assert set(speed.model().predict(inputs)) <= {"yes", "no"}


@pytest.mark.parametrize("rest", ["models: {[a]: }", "", "studies:", "studies: [ill]", "ill"])
def test_a_name_whose_config_is_broken_can_be_used_again(here, rest):
    """And the final models that its results have are rebuilt."""
    file = Path("ill.yaml")
    file.write_text(workflow.HEADER + rest)
    assert workflow.file_of("ill") == file
    assert not workflow.has_final(file, "ill")
    final = here / "results" / "ill" / "studies" / "ill" / "final"
    final.mkdir(parents=True)
    (final / "models.json").touch()
    assert workflow.has_final(file, "ill")


def test_a_call_that_is_refused_keeps_no_name(here):
    """It wrote the pickled model before it was refused, which the next call replaces."""
    inputs, answers = rows()[["age"]], rows()["ill"]
    for strength, groups in ((1.0, [1, 2]), (2.0, [3])):
        models = {"logit": make_pipeline(StandardScaler(), LogisticRegression(C=strength))}
        with pytest.raises(ValueError, match=r"^groups: found"):
            cross_validate((inputs, answers), models, groups=np.array(groups), name="ill", cores=1)
    assert "ill.logit.pkl" in Path("ill.yaml").read_text()


def test_a_damaged_result_says_so(result):
    for name, look in {
        "models_table.csv": lambda: result.table,
        "verdict.txt": lambda: result.answer,
        "runs.csv": lambda: result.runs,
        "predictions.parquet": lambda: result.predictions,
    }.items():
        file = result.folder / name
        content = file.read_bytes()
        for damaged in (content[: len(content) // 2], b"", content.replace(b"0", b"1", 1)):
            file.write_bytes(damaged)
            with pytest.raises(ValueError, match=f"{name} is not what the study wrote; the same"):
                look()
        file.unlink()
        with pytest.raises(ValueError, match=f"{name} is not what the study wrote"):
            look()
        file.write_bytes(content)
        look()


def test_a_config_that_a_person_wrote_stays():
    Path("ill.yaml").write_text(BY_HAND)
    with pytest.raises(ValueError, match=r"name: .* was not written from Python"):
        study_of_ill()
    assert Path("ill.yaml").read_text() == BY_HAND


def test_data_that_a_person_saved_stay(here):
    rows().to_parquet("ill.parquet")
    content = Path("ill.parquet").read_bytes()
    # There is a config, but of other data.
    workflow.write(Path("ill.yaml"), {"datasets": {"ill": {"name": "npz", "path": "ill.npz"}}})
    with pytest.raises(ValueError, match=r"name: ill.parquet exists and was not written from"):
        study_of_ill()
    assert Path("ill.parquet").read_bytes() == content


def test_what_users_of_scikit_learn_give_in_a_folder_called_config(here, monkeypatch):
    """A pipeline, a search, a function, a metric, a splitter, and inputs beside answers."""
    folder = here / "config" / "inner"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    Path("mine.py").write_text(PIPELINE)
    monkeypatch.syspath_prepend(folder)
    import mine

    search = GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 2]}, cv=2)
    models = {
        "function": mine.scaled,
        "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
        "search": search,
        "boosting": GradientBoostingClassifier(n_estimators=2, loss="exponential", random_state=7),
        "swept": {"name": RandomForestClassifier, "n_estimators": [2, 3]},
    }
    frame = rows()
    inputs, answers = frame[["age", "sex"]], frame["ill"].map({0: "no", 1: "yes"})
    splitter = GroupKFold(3)
    result = cross_validate(
        (inputs, answers),
        models,
        groups=frame["ward"],
        folds=splitter,
        metrics=[mine.share_of_yes, "accuracy"],
        name="ill",
        cores=2,
    )
    found = result.predictions
    expected = list(splitter.split(frame, groups=frame["ward"]))
    assert sorted(map(tuple, found.groupby("split")["sample"].unique())) == sorted(
        tuple(held_out) for _, held_out in expected
    )
    assert set(found["model"]) == {*models} - {"swept"} | {
        "swept-n_estimators2",
        "swept-n_estimators3",
    }
    scaled = StandardScaler()
    for trained, held_out in expected:
        encoded = pd.get_dummies(inputs).to_numpy(float)
        scaler = scaled.fit(encoded[trained])
        plain = make_pipeline(StandardScaler(), LogisticRegression())
        plain.fit(scaler.transform(encoded[trained]), answers.iloc[trained])
        of_fold = found[(found["model"] == "pipeline") & found["sample"].isin(held_out)]
        of_fold = of_fold.set_index("sample").loc[held_out]
        assert list(of_fold["predicted_class"]) == list(
            plain.predict(scaler.transform(encoded[held_out]))
        )


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


LONG = """
import sys
from allcores_study import cross_validate

model = dict(hidden=[8], batch_size=1, epochs=2000, optimizer=dict(name="sgd", lr=0.01))
cross_validate("digits", {"mlp": model}, name="long", folds=2, cores=2)
"""


@pytest.mark.parametrize("way", ["Ctrl-C", "a kill of snakemake"])
def test_a_call_that_is_ended_leaves_nothing(here, monkeypatch, way):
    """With a warm process of its own, as users have it."""
    Path("long.py").write_text(LONG)
    monkeypatch.delenv(warm_start.THERE)
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
    if way == "Ctrl-C":
        process.send_signal(signal.SIGINT)
    else:
        below = psutil.Process(process.pid).children()
        (snakemake,) = [one for one in below if "snakemake" in one.cmdline()]
        snakemake.kill()
    _, told = process.communicate(timeout=patience.seconds(60))
    assert ("stopped; the same call continues" in told) == (way == "Ctrl-C")
    assert not list(Path(".snakemake").glob("warm_process_*"))
    assert "starting without" not in "".join(log.read_text() for log in results.rglob("*.log"))
    left = subprocess.run(["pgrep", "-f", str(here)], capture_output=True, text=True).stdout.split()
    assert not left
