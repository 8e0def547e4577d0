"""What is left of a run when it is over: its predictions, and a network for new samples."""

import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from conftest import ENVIRONMENT, LENET, RUN, Laboratory, program, vary
from PIL import Image
from project import copy

from allcores_study.analysis import tidy
from allcores_study.config.run import Entry
from allcores_study.data import storage
from allcores_study.serving import samples
from allcores_study.serving.model import Model
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


LOST = RUN.optimizer.__class__("SGD", "SGD", {"lr": 1e30})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A laboratory with two folds of a run, `study`."""
    laboratory = Laboratory(tmp_path_factory.mktemp("trained"))
    laboratory.study = study_of(laboratory, [vary(RUN, folds=2, fold=fold) for fold in (0, 1)])
    return laboratory


def study_of(laboratory, runs):
    """Train runs, and return the folder of their study with what a report writes of them."""
    metrics = [laboratory.trained(run, f"runs/{run.path}")[0] for run in runs]
    scores = [{"accuracy": of_run.get("accuracy", np.nan)} for of_run in metrics]
    place = laboratory.folder / "studies" / "one"
    place.mkdir(parents=True)
    frame = tidy.runs(metrics, scores).assign(path=[run.path for run in runs])
    frame.to_csv(place / "runs.csv", index=False)
    return place


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
    run = vary(RUN, optimizer=LOST)
    record, _ = laboratory.trained(run)
    assert record["diverged"]
    assert len(pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")) == 0
    with pytest.raises(ValueError, match="the run diverged and has no weights"):
        Predictor(laboratory.folder / "run")


def test_the_networks_of_all_folds_are_averaged(trained, tmp_path):
    images = opened(trained).inputs[:5]
    np.savez(tmp_path / "new.npz", images=images, labels=np.zeros(5))
    done = predict(tmp_path, trained.study, "new.npz")
    said, *notes = done.stdout.splitlines()
    assert said == (
        "5 samples, by the mean of 2 runs (mlp, cosine, serial); written to predictions.csv"
    )
    assert notes[0] == "NOTE: predicted are the images; not used: labels"
    assert notes[1].startswith("NOTE: 5 of 5 samples are among those that a run was trained on")
    both = Model.of(trained.study).predictors
    assert [predictor.run.fold for predictor in both] == [0, 1]
    expected = np.mean([predictor.predictions(images) for predictor in both], axis=0)
    table = pd.read_csv(tmp_path / "predictions.csv")
    columns = [f"p_{name}" for name in both[0].classes]
    assert list(table) == ["sample", "predicted", *columns]
    assert table[columns].to_numpy() == pytest.approx(expected, abs=1e-6)
    assert list(table["predicted"]) == [int(both[0].classes[n]) for n in expected.argmax(axis=1)]


def test_a_model_of_a_study_is_the_one_that_scored_best(laboratory):
    other = Entry("other", "fake", RUN.dataset.options | {"seed": 1})
    runs = [
        vary(RUN, folds=2, fold=fold, model=model)
        for fold in (0, 1)
        for model in (RUN.model, LENET)
    ]
    study = study_of(laboratory, [*runs, vary(RUN, dataset=other)])
    frame = tidy.read(study / "runs.csv")
    means = frame[frame["dataset"] == "tiny"].groupby("model")["accuracy"].mean()
    assert Model.of(study, dataset="tiny").predictors[0].run.model.label == means.idxmax()
    # The same numbers as a loss, of which less is better.
    frame.rename(columns={"accuracy": "log_loss"}).to_csv(study / "runs.csv", index=False)
    assert Model.of(study, dataset="tiny").predictors[0].run.model.label == means.idxmin()
    lenet = Model.of(study, "lenet")
    assert str(lenet) == "the mean of 2 runs (lenet, cosine, serial)"
    with pytest.raises(ValueError, match="has no vgg of tiny; found "):
        Model.of(study, "vgg", "tiny")
    with pytest.raises(ValueError, match="has models of several datasets; give one: "):
        Model.of(study)
    with pytest.raises(ValueError, match=f"expected the folder of a run or .* such as {study}"):
        Model.of(laboratory.folder)
    with pytest.raises(ValueError, match="is a run of lenet, not mlp"):
        Model.of(lenet.predictors[0].folder, "mlp")


def test_only_what_a_run_was_trained_on_is_called_so(laboratory):
    """Not all that it was not scored on: of a part of the samples, or of those that come before."""
    run = vary(RUN, folds=3, fold=0, train_size=12)
    laboratory.trained(run, "runs/one")
    model = Model.of(laboratory.folder / "runs" / "one")
    (note,) = model.predictions(opened(laboratory).inputs).notes
    assert note.startswith("12 of 73 samples are among those that the run was trained on")


def test_many_samples_are_predicted_as_few_are(trained):
    images = np.resize(opened(trained).inputs, (700, 3, 8, 8))
    model = Model.of(trained.study)
    table = model.predictions(images).table
    expected = np.mean([one.predictions(images) for one in model.predictors], axis=0)
    assert np.array_equal(table.filter(regex="^p_"), expected)


def test_runs_of_other_data_are_not_averaged(laboratory):
    for fold in (0, 1):
        laboratory.trained(vary(RUN, folds=2, fold=fold), f"runs/{fold}")
    predictors = [Predictor(laboratory.folder / "runs" / str(fold)) for fold in (0, 1)]
    Model(predictors)
    predictors[1].data = "of a file that was changed between them"
    with pytest.raises(ValueError, match="was trained on other data than"):
        Model(predictors)


def test_samples_are_not_overwritten_by_their_predictions(trained, tmp_path):
    np.savez(tmp_path / "new.npz", images=opened(trained).inputs[:5])
    done = predict(tmp_path, trained.study, "new.npz", "--output", "new.npz")
    assert done.returncode == 1
    assert "new.npz has the samples; give another name" in done.stderr
    assert np.load(tmp_path / "new.npz")["images"].shape == (5, 3, 8, 8)


def test_a_run_that_diverged_is_left_out_of_others(laboratory):
    runs = [vary(RUN, folds=2, fold=0), vary(RUN, folds=2, fold=1, optimizer=LOST)]
    model = Model.of(study_of(laboratory, runs))
    assert [predictor.run.fold for predictor in model.predictors] == [0]
    (note,) = model.predictions(opened(laboratory).inputs[:1] + 1).notes
    assert note.endswith(f"{runs[1].path} is left out: it diverged")


def test_damaged_weights_are_told(trained, tmp_path):
    place = tmp_path / "run"
    shutil.copytree(Model.of(trained.study).predictors[0].folder, place)
    weights = place / "weights.pt"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"weights\.pt is gone, or is not what the run wrote"):
        Predictor(place)


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
    photo_samples = samples.of(photos, predictor)
    assert photo_samples.names[:2] == ["dark/0.png", "dark/1.png"]
    dataset = opened(laboratory, vary(RUN, dataset=entry))
    assert np.array_equal(photo_samples.inputs[:16], dataset.inputs)
    single = samples.of(photos / "light" / "0.png", predictor)
    assert (single.names, single.notes) == (["0.png"], ())
    assert np.array_equal(single.inputs[:256][0], photo_samples.inputs[8:9][0])


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
    ],
)
def test_what_cannot_be_predicted_is_told(trained, tmp_path, given, message):
    (tmp_path / "empty").mkdir()
    images = opened(trained).inputs
    np.savez(tmp_path / "other.npz", pixels=images[:2])
    np.savez(tmp_path / "wide.npz", images=np.zeros((2, 9, 9), np.uint8))
    np.savez(tmp_path / "none.npz", images=np.zeros((0, 8, 8), np.uint8))
    np.savez(tmp_path / "nothing.npz")
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "damaged.npy").write_bytes(b"nothing")
    (tmp_path / "damaged.npz").write_bytes(b"PK\3\4 nothing")
    predictor = Model.of(trained.study).predictors[0]
    with pytest.raises(ValueError, match=message):
        predictor.scores(samples.of(tmp_path / given, predictor).inputs)


def test_a_folder_without_a_run_is_told(tmp_path):
    process = predict(tmp_path, tmp_path, "x.npz")
    assert process.returncode == 1
    assert process.stderr.startswith("predict.py: ")
    assert "expected the folder of a run or of a study, such as results/" in process.stderr


def test_a_model_that_was_edited_since_is_told(tmp_path):
    project = copy(tmp_path)
    (tmp_path / "nets.py").write_text(NET)
    model = {"import": "nets:Net", "batch_size": 16, "epochs": 1, "optimizer": SGD}
    project.configure(lambda config: config.update(models={"mine": model}))
    study = {"models": ["mine"], "strategies": ["serial"]}
    project.configure(lambda config: config["studies"]["first"].update(study))
    project.call("--until", "train", "train_several")
    np.save(tmp_path / "new.npy", np.load(project.results / "data" / "tiny" / "inputs.npy"))
    arguments = next((project.results / "runs").rglob("metrics.json")).parent, "new.npy"
    assert "nets.py" not in predict(tmp_path, *arguments).stdout
    project.edit("nets.py", "torch.relu", "torch.sigmoid")
    said = predict(tmp_path, *arguments).stdout
    assert "NOTE: nets.py differ from what the runs were trained with" in said
    project.edit("nets.py", "width=4", "width=40")
    said = predict(tmp_path, *arguments).stderr
    assert "its weights do not fit the model; edited since: nets.py" in said
    assert "Traceback" not in said
