"""What is left of a run when it is over: its predictions, and a network for new samples."""

import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from conftest import ENVIRONMENT, LENET, RUN, Laboratory, program, vary
from PIL import Image
from project import copy

from allcores_study.config.run import Entry
from allcores_study.data import storage
from allcores_study.serving import ensemble, output, samples
from allcores_study.serving.predictor import Predictor

CHANNELS_LAST = {"memory_format": "channels_last"}
NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self, classes, width=4):
        super().__init__()
        self.first = torch.nn.Linear(192, width)
        self.last = torch.nn.Linear(width, classes)

    def forward(self, images):
        return self.last(torch.relu(self.first(images.flatten(1))))
"""
SGD = {"name": "sgd", "lr": 0.05}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A laboratory with two folds of a run."""
    laboratory = Laboratory(tmp_path_factory.mktemp("trained"))
    for fold in (0, 1):
        laboratory.trained(vary(RUN, fold=fold), name=f"runs/fold{fold}")
    return laboratory


def opened(laboratory, run=RUN):
    return storage.open_dataset(laboratory.data(run.dataset))


def predict(folder, *arguments):
    command = [*program("predict"), *arguments]
    command = list(map(str, command))
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, text=True, capture_output=True)


@pytest.mark.parametrize("recipe", [{}, CHANNELS_LAST], ids=["contiguous", "channels_last"])
def test_a_network_says_again_what_it_said_when_it_was_scored(laboratory, recipe):
    run = vary(RUN, **recipe)
    record, _ = laboratory.trained(run)
    predictions = pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")
    scores = np.stack(predictions["scores"])
    predictor = Predictor(laboratory.folder / "run")
    dataset = opened(laboratory, run)
    assert np.array_equal(predictor.scores(dataset.inputs[predictions["sample"]]), scores)
    assert np.array_equal(predictions["predicted"], scores.argmax(axis=1))
    assert np.array_equal(predictions["true"], dataset.targets[predictions["sample"]])
    pairs = predictions["true"].to_numpy(), predictions["predicted"].to_numpy()
    measures = predictor.task.measured(*pairs)
    assert measures["confusion"] == record["confusion"]
    assert len(predictions) == record["held_out_samples"]


def test_a_run_that_diverged_predicts_nothing(laboratory):
    run = vary(RUN, optimizer=RUN.optimizer.__class__("SGD", "SGD", {"lr": 1e30}))
    record, _ = laboratory.trained(run)
    assert record["diverged"]
    assert len(pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")) == 0
    with pytest.raises(ValueError, match="the run diverged and has no weights"):
        Predictor(laboratory.folder / "run")


def test_the_networks_of_several_runs_are_averaged(trained, tmp_path):
    images = opened(trained).inputs[:5]
    np.savez(tmp_path / "new.npz", images=images)
    done = predict(tmp_path, trained.folder / "runs", "new.npz")
    said, *notes = done.stdout.splitlines()
    assert said == "5 samples, averaged over 2 runs (2 of mlp); written to predictions.csv"
    (note,) = notes
    assert note.startswith("NOTE: 5 of 5 samples are among those that a run was trained on")
    both = [Predictor(trained.folder / "runs" / f"fold{fold}") for fold in (0, 1)]
    expected = np.mean([predictor.predictions(images) for predictor in both], axis=0)
    table = pd.read_csv(tmp_path / "predictions.csv")
    columns = [f"p_{name}" for name in both[0].classes]
    assert list(table) == ["sample", "predicted", *columns]
    assert table[columns].to_numpy() == pytest.approx(expected, abs=1e-6)
    assert list(table["predicted"]) == [int(both[0].classes[n]) for n in expected.argmax(axis=1)]


def test_what_does_not_belong_together_is_not_averaged(laboratory):
    """Runs of other data, also where shape and classes are the same; of other models if asked."""
    other = Entry("other", "fake", RUN.dataset.options | {"seed": 1})
    laboratory.trained(RUN, "runs/tiny/mlp")
    laboratory.trained(vary(RUN, model=LENET), "runs/tiny/lenet")
    laboratory.trained(vary(RUN, dataset=other), "runs/other")
    runs = laboratory.folder / "runs"
    with pytest.raises(ValueError, match=r"different datasets: .* \(other, tiny\); expected"):
        ensemble.read(runs)
    both = ensemble.read(runs / "tiny")
    assert ensemble.description(both) == "averaged over 2 runs (1 of lenet, 1 of mlp)"
    alone = ensemble.read(runs / "tiny", "lenet")
    assert ensemble.description(alone) == f"by the run {runs / 'tiny' / 'lenet'}"
    with pytest.raises(ValueError, match="has no run of 'vgg'; found lenet, mlp"):
        ensemble.read(runs / "tiny", "vgg")


def test_only_what_a_run_was_trained_on_is_called_so(laboratory):
    """Not all that it was not scored on: of a part of the samples, or of those that come before."""
    run = vary(RUN, folds=3, fold=0, train_size=12)
    laboratory.trained(run, "runs/one")
    place = laboratory.folder / "runs" / "one"
    (note,) = ensemble.notes(ensemble.read(place), opened(laboratory).inputs, place)
    assert note.startswith("12 of 73 samples are among those that the run was trained on")


def test_a_run_that_diverged_is_left_out_of_others(laboratory):
    laboratory.trained(RUN, "runs/good")
    lost = RUN.optimizer.__class__("SGD", "SGD", {"lr": 1e30})
    laboratory.trained(vary(RUN, optimizer=lost), "runs/lost")
    predictors = ensemble.read(laboratory.folder / "runs")
    assert [predictor.folder.name for predictor in predictors] == ["good"]
    images = opened(laboratory).inputs[:1] + 1
    (note,) = ensemble.notes(predictors, images, laboratory.folder / "runs")
    assert note.endswith("runs/lost is left out: it diverged")


def test_classes_that_are_equal_as_numbers_are_told_apart():
    def places(values, classes):
        return samples._classes(pd.Series(values), classes)[0].tolist()

    assert places(["1.1", "1.10", "1.1"], ["1.1", "1.10"]) == [0, 1, 0]
    assert places([9007199254740993], ["9007199254740992", "9007199254740993"]) == [1]
    assert places([5.0, 7.0], ["5", "7"]) == [0, 1]


def test_no_file_is_overwritten_that_is_somebody_elses(tmp_path):
    file = tmp_path / "thesis.csv"
    output.refuse_foreign(file)
    file.write_text("chapter,words\n1,4000\n")
    with pytest.raises(ValueError, match=r"thesis\.csv exists and was not written by predict"):
        output.refuse_foreign(file)
    file.write_text("sample,predicted\n0,1\n")
    output.refuse_foreign(file)


def test_damaged_weights_are_told(trained, tmp_path):
    place = tmp_path / "run"
    shutil.copytree(trained.folder / "runs" / "fold0", place)
    weights = place / "weights.pt"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"weights\.pt is gone, or is not what the run wrote"):
        Predictor(place)


def test_a_prepared_dataset_comes_with_its_classes(trained):
    dataset = opened(trained)
    predictor = Predictor(trained.folder / "runs" / "fold0")
    given = samples.read(trained.data(), predictor)
    assert np.array_equal(given.true, dataset.targets)
    assert np.array_equal(given.inputs, dataset.inputs)
    assert predictor.predictions(given.inputs).sum(axis=1) == pytest.approx(1.0)


def test_a_prepared_dataset_of_other_classes_is_not_scored(trained):
    other = Entry("other", "fake", RUN.dataset.options | {"classes": 4})
    predictor = Predictor(trained.folder / "runs" / "fold0")
    given = samples.read(trained.data(other), predictor)
    assert given.true is None
    assert given.notes == ("it has different targets: predictions are not scored",)


def test_files_of_images_are_predicted_by_name(laboratory, tmp_path):
    photos = tmp_path / "photos"
    for name, colour in (("dark", 10), ("light", 240)):
        (photos / name).mkdir(parents=True)
        for number in range(8):
            pixels = np.full((12, 12, 3), colour + number, np.uint8)
            Image.fromarray(pixels).save(photos / name / f"{number}.png")
    entry = RUN.dataset.__class__("photos", "image_folder", {"path": str(photos), "size": 8})
    laboratory.trained(vary(RUN, dataset=entry, folds=2, fold=0))
    predictor = Predictor(laboratory.folder / "run")
    photo_samples = samples.read(photos, predictor)
    assert photo_samples.names[:2] == ["dark/0.png", "dark/1.png"]
    assert list(photo_samples.true) == 8 * [0] + 8 * [1]
    dataset = opened(laboratory, vary(RUN, dataset=entry))
    assert np.array_equal(photo_samples.inputs, dataset.inputs)
    single = samples.read(photos / "light" / "0.png", predictor)
    assert (single.names, single.true, single.notes) == (["0.png"], None, ())
    assert np.array_equal(single.inputs[0], photo_samples.inputs[8])
    predictor.classes = ["dark", "bright"]
    others = samples.read(photos, predictor)
    assert others.true is None
    assert "in light, which is not a class of the run: predictions are not" in others.notes[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nowhere", "nowhere: no such file or folder"),
        ("notes.txt", "expected a .npz, a .npy, an image, a folder"),
        ("empty", "contains no images"),
        ("other.npz", r"has no array inputs or images; found pixels"),
        ("wide.npz", r"found samples of uint8, \(1, 9, 9\); the run was trained on uint8, \("),
        ("damaged.npy", "not a file that numpy wrote"),
        ("damaged.npz", "not a file that numpy wrote"),
        ("none.npz", r"none of them 0; found \(0, 1, 8, 8\)"),
        ("nothing.npz", "has no array inputs or images; found none"),
        ("beyond.npz", r"labels must be \(2,\) integers from 0 to"),
        ("labelled.npz", r"labels must be \(2,\) integers"),
    ],
)
def test_what_cannot_be_predicted_is_told(trained, tmp_path, given, message):
    (tmp_path / "empty").mkdir()
    images = opened(trained).inputs
    np.savez(tmp_path / "other.npz", pixels=images[:2])
    np.savez(tmp_path / "wide.npz", images=np.zeros((2, 9, 9), np.uint8))
    np.savez(tmp_path / "labelled.npz", images=images[:2], labels=[1.5, 2])
    np.savez(tmp_path / "none.npz", images=np.zeros((0, 8, 8), np.uint8))
    np.savez(tmp_path / "beyond.npz", images=images[:2], labels=[0, 99])
    np.savez(tmp_path / "nothing.npz")
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "damaged.npy").write_bytes(b"nothing")
    (tmp_path / "damaged.npz").write_bytes(b"PK\3\4 nothing")
    predictor = Predictor(trained.folder / "runs" / "fold0")
    with pytest.raises(ValueError, match=message):
        predictor.scores(samples.read(tmp_path / given, predictor).inputs)


def test_a_folder_without_a_run_is_told(tmp_path):
    process = predict(tmp_path, tmp_path, "x.npz")
    assert process.returncode == 1
    assert process.stderr.startswith("predict.py: ")
    assert "holds no results of a run" in process.stderr


def test_a_model_that_was_edited_since_is_told(tmp_path):
    project = copy(tmp_path)
    (tmp_path / "nets.py").write_text(NET)
    model = {"import": "nets:Net", "batch_size": 16, "epochs": 1, "optimizer": SGD}
    project.configure(lambda config: config.update(models={"mine": model}))
    study = {"models": ["mine"], "strategies": ["serial"]}
    project.configure(lambda config: config["studies"]["first"].update(study))
    project.call("--until", "train", "train_several")
    arguments = project.results / "runs", project.results / "data" / "tiny"
    assert "nets.py" not in predict(tmp_path, *arguments).stdout
    project.edit("nets.py", "torch.relu", "torch.sigmoid")
    said = predict(tmp_path, *arguments).stdout
    assert "NOTE: nets.py differ from what the runs were trained with" in said
    project.edit("nets.py", "width=4", "width=40")
    said = predict(tmp_path, *arguments).stderr
    assert "its weights do not fit the model; edited since: nets.py" in said
    assert "Traceback" not in said
