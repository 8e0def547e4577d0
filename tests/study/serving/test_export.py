"""A run as one file of another format: it predicts what the run does, of every kind of data."""

import functools
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import test_multilabel
import test_no_leak
import test_pixels
import test_several_numbers
import test_tokens
import torch
from conftest import LENET, RUN, Laboratory, vary
from test_estimators import FOREST, estimator_run, table_of

from allcores_study import Model
from allcores_study.config.run import Entry
from allcores_study.data import storage
from allcores_study.data.folds import Assignable
from allcores_study.interactive import data_files
from allcores_study.serving import export
from allcores_study.serving.predictor import Predictor

NUMBERS, TARGETS = test_several_numbers.FRAME, test_several_numbers.TARGETS
RIDGE = "sklearn.linear_model:Ridge"
# Loads a file as somebody does who has torch alone.
ELSEWHERE = """
import sys, numpy, torch
made = torch.export.load(sys.argv[1]).module()(torch.from_numpy(numpy.load(sys.argv[2])))
assert not {name for name in sys.modules if name.startswith("allcores_study")}
numpy.save(sys.argv[2], made.numpy())
"""


def ill(folder):
    """A table with missing values, and a town that only a row of the test fold has."""
    size = np.where(np.arange(30) % 5 == 2, np.nan, test_no_leak.NOISE[:, 0, 0])
    town, labels = test_no_leak.TOWNS.copy(), test_no_leak.LABELS
    town[np.flatnonzero(Assignable(labels).folds(3, RUN.seed) == 0)[0]] = "Aachen"
    frame = pd.DataFrame({"size": size, "town": town, "y": labels})
    entry = table_of(folder / "ill.csv", frame, "y", "classification")
    return Entry("ill", "table", entry.options | {"missing": "mean", "missing_values": [-999]})


def table_run(folder, target, task, loss, frame=NUMBERS):
    return test_several_numbers.run_on(folder / f"{task}.csv", frame, target, task, loss)


def labels_run(folder):
    frame, labels = test_multilabel.FRAME, test_multilabel.LABELS
    return table_run(folder, labels, "multilabel", "BCEWithLogitsLoss", frame)


NETWORKS = {
    "images": lambda folder: RUN,
    "channels_last": lambda folder: vary(model=LENET, memory_format="channels_last"),
    "table": lambda folder: vary(dataset=ill(folder), crop=0, flip=False, folds=3, fold=0),
    "number": lambda folder: table_run(folder, "cost", "regression", "MSELoss"),
    "numbers": lambda folder: table_run(folder, TARGETS, "regression", "MSELoss"),
    "labels": labels_run,
    "pixels": lambda folder: test_pixels.run_on(folder / "scenes"),
    "text_cnn": test_tokens.run_on,
    "transformer": lambda folder: test_tokens.run_on(folder, model="transformer"),
}
FORESTS = {"images": lambda folder: estimator_run(RUN.dataset, FOREST, n_estimators=5)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the Predictor of a run, and inputs of it; each is trained once."""

    @functools.cache
    def of(make):
        folder = tmp_path_factory.mktemp("trained")
        laboratory, run = Laboratory(folder), make(folder)
        laboratory.trained(run)
        predictor = Predictor(folder / "run")
        inputs = np.array(storage.open_dataset(laboratory.data(run.dataset)).inputs)
        if predictor.vocabulary:  # the dataset's numbers are those of all words
            inputs %= predictor.vocabulary.size
        return predictor, inputs

    return of


def assert_same(found, predictor, inputs):
    expected = predictor.predictions(inputs)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.filterwarnings("error:No complete tensor")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_graph_predicts_what_the_run_does(trained, tmp_path, name):
    predictor, inputs = trained(NETWORKS[name])
    if name == "table":
        assert np.isnan(inputs).any() and inputs[:, predictor.unseen].any()
    path = predictor.export(tmp_path / "model.pt2")
    graph = torch.export.load(path).module()
    for count in (len(inputs), 1, 3):
        assert_same(graph(torch.from_numpy(inputs[:count])).numpy(), predictor, inputs[:count])
    assert all(
        part.requires_grad for part in predictor.model.parameters()
    )  # may be trained further


def test_a_graph_needs_torch_alone_and_says_what_it_is(trained, tmp_path):
    predictor, inputs = trained(NETWORKS["table"])
    path = predictor.export(str(tmp_path / "model.pt2"))
    # As other programs have missing numbers: the file also replaces the code.
    np.save(tmp_path / "new.npy", np.nan_to_num(inputs, nan=-999))
    command = [sys.executable, "-c", ELSEWHERE, path, tmp_path / "new.npy"]
    subprocess.run(command, check=True)
    assert_same(np.load(tmp_path / "new.npy"), predictor, inputs)
    told = {"allcores.json": ""}
    torch.export.load(path, extra_files=told)
    description = json.loads(told["allcores.json"])
    assert (description["classes"], description["names"]) == ([0, 1], ["0", "1"])
    assert description["missing_values"] == [-999.0]
    assert [column["name"] for column in description["columns"]] == ["size", *4 * ["town"]]
    assert (description["shape"], description["dtype"]) == ([5], "float64")
    assert description["task"] == "classification"
    assert description["run"] == predictor.run.path
    assert description["vocabulary"] is None


def test_a_graph_of_texts_says_the_number_of_each_word(trained, tmp_path):
    predictor, _ = trained(NETWORKS["text_cnn"])
    told = {"allcores.json": ""}
    torch.export.load(predictor.export(tmp_path / "model.pt2"), extra_files=told)
    assert json.loads(told["allcores.json"])["vocabulary"] == predictor.vocabulary.to_json()


@pytest.mark.long
@pytest.mark.parametrize("name", NETWORKS)
def test_onnx_predicts_what_the_run_does(trained, tmp_path, name):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason="make soak installs it")
    import onnxruntime

    predictor, inputs = trained(NETWORKS[name])
    path = predictor.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(path)
    for count in (len(inputs), 1, 3):
        (found,) = session.run(["predictions"], {"inputs": inputs[:count]})
        assert_same(found, predictor, inputs[:count])
    told = session.get_modelmeta().custom_metadata_map["allcores.json"]
    assert json.loads(told)["shape"] == list(predictor.shape)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (NETWORKS, "model.pt", r"model.pt: expected a name that ends in .pt2 or .onnx"),
        (FORESTS, "model.pt2", r"mine is an estimator; expected a network"),
    ],
)
def test_what_a_file_ends_in_decides(trained, tmp_path, kind, name, message):
    predictor, _ = trained(kind["images"])
    with pytest.raises(ValueError, match=message):
        predictor.export(tmp_path / name)


def test_a_missing_package_is_told(trained, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    predictor, _ = trained(NETWORKS["images"])
    with pytest.raises(ValueError, match="run `pip install onnx onnxscript`"):
        predictor.export(tmp_path / "model.onnx")


def test_a_network_that_cannot_be_traced_is_told(tmp_path, laboratory):
    laboratory.trained(test_tokens.run_on(tmp_path, model="lstm"))
    with pytest.raises(ValueError, match=r"run: torch.export cannot trace lstm \(TypeError: "):
        Predictor(laboratory.folder / "run").export(tmp_path / "model.pt2")
    assert not (tmp_path / "model.pt2").exists()


def test_a_model_of_one_run_is_exported_and_an_average_is_not(laboratory, tmp_path):
    for fold in (0, 1):
        laboratory.trained(vary(RUN, fold=fold), f"runs/{fold}")
    folders = [laboratory.folder / "runs" / str(fold) for fold in (0, 1)]
    both = Model([Predictor(folder) for folder in folders])
    with pytest.raises(ValueError, match=r"the average of 2 runs cannot.*`final: true`"):
        both.export(tmp_path / "model.pt2")
    one = Model.of(folders[0])
    path = one.export(tmp_path / "model.pt2")
    images = np.zeros((2, *one.predictors[0].shape), np.uint8)
    found = torch.export.load(path).module()(torch.from_numpy(images)).numpy()
    assert found == pytest.approx(one.predict_proba(images), abs=1e-6)


@pytest.mark.parametrize(
    ("answers", "classes"),
    [
        (pd.Series(pd.Categorical(["b", "a"] * 30, ["b", "a"], ordered=True)), ["b", "a"]),
        (pd.cut(pd.Series([1.5, 0.5] * 30), [0.1, 1, 2]), ["(0.1, 1.0]", "(1.0, 2.0]"]),
        (pd.Series([2.0, 5.0] * 30), [2.0, 5.0]),
    ],
    ids=["ordered", "intervals", "floats"],
)
def test_a_file_names_classes_of_any_kind(laboratory, tmp_path, answers, classes):
    frame = pd.DataFrame({"x": np.arange(60.0), "y": answers})
    entry, _ = data_files.entry(tmp_path / "mine.yaml", frame, "y", None, 2, {})
    dataset = Entry("mine", "table", {"path": str(tmp_path / entry["path"]), "target": "y"})
    laboratory.trained(vary(dataset=dataset, crop=0, flip=False, folds=2, fold=0))
    predictor = Predictor(laboratory.folder / "run")
    assert json.loads(export.description(predictor))["classes"] == classes


ROTATING = """
import torch

class Net(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.last = torch.nn.Linear(192, classes)

    def forward(self, images):
        rotated = torch.linalg.matrix_exp(1e-3 * self.last.weight @ self.last.weight.T)
        return self.last(images.flatten(1)) @ rotated
"""


def test_what_onnx_does_not_have_is_told(tmp_path, laboratory, monkeypatch):
    pytest.importorskip("onnxscript")
    (tmp_path / "rotating.py").write_text(ROTATING)
    monkeypatch.syspath_prepend(tmp_path)
    laboratory.trained(vary(model=Entry("mine", "rotating:Net", {})))
    with pytest.raises(ValueError, match=r"onnx: torch.onnx cannot convert mine \(ConversionErr"):
        Predictor(laboratory.folder / "run").export(tmp_path / "model.onnx")
