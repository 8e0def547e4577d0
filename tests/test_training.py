"""The loop from start to results: no leak, resume bit for bit, what a run leaves behind."""

import csv
import json
import os
import signal

import numpy as np
import pytest
import torch
from conftest import DDP, LENET, MOBILENET, RUN, same_weights, using, vary

from allcores import data, results
from allcores.checkpoints import Work
from allcores.run import Choice, Run

CURVES = vary(curves=True, epochs=3, model=MOBILENET)


def test_a_run_leaves_everything_and_no_checkpoint(laboratory):
    metrics, weights = laboratory.conduct(CURVES)
    written = results.read_metrics(laboratory.folder / "run" / "metrics.json")
    assert written == json.loads(json.dumps(metrics))
    assert Run.from_json(json.dumps(written["settings"])) == CURVES
    confusion = np.array(written["confusion"])
    assert confusion.sum() == written["held_out_samples"] == 20
    assert written["accuracy"] == np.trace(confusion) / 20
    recalls = np.diag(confusion) / confusion.sum(axis=1)
    assert written["accuracy_per_class"] == pytest.approx(recalls)
    assert [epoch["epoch"] for epoch in written["epochs"]] == [1, 2, 3]
    for epoch in written["epochs"]:
        assert 0 <= epoch["accuracy"] <= 1
        assert epoch["seconds"] == pytest.approx(sum(epoch["phases"].values()))
        assert set(epoch["phases"]) == {"data", "compute", "update", "wait"}
    assert written["epochs"][-1]["accuracy"] == written["accuracy"]
    assert written["training_seconds"] < written["ended"] - written["started"]
    assert written["start_up_seconds"] > 0
    assert written["cpu_seconds"] > 0
    assert written["peak_memory_bytes"] > 50e6
    assert written["machine"]["torch"] == torch.__version__
    assert written["machine"]["cores_allowed"] == len(os.sched_getaffinity(0))
    with (laboratory.folder / "run" / "utilisation.csv").open() as file:
        rows = [(float(row["time"]), float(row["cpu_seconds"])) for row in csv.DictReader(file)]
    assert rows == sorted(rows)
    assert rows[0][1] == 0 < rows[-1][1]
    assert sum(tensor.numel() for tensor in weights.values()) > 1000
    assert not laboratory.work("run").exists()


def test_only_the_last_epoch_is_scored_without_curves(laboratory):
    metrics, _ = laboratory.conduct(vary(epochs=2))
    assert metrics["epochs"][0]["accuracy"] is None
    assert metrics["epochs"][1]["accuracy"] == metrics["accuracy"]


def test_training_learns(laboratory):
    tiny = Choice("tiny", "synthetic", {"count": 300, "test": 200, "size": 12, "noise": 0.3})
    run = vary(dataset=tiny, model=Choice("lenet", "lenet", {}), epochs=8, crop=0, flip=False)
    metrics, _ = laboratory.conduct(run)
    assert metrics["accuracy"] > 0.9
    assert metrics["epochs"][-1]["loss"] < metrics["epochs"][0]["loss"] / 3


@pytest.mark.parametrize("strategy", [RUN.strategy, DDP], ids=["serial", "ddp"])
def test_training_never_opens_the_held_out_fold(laboratory, strategy):
    """Whatever stands there, the weights come out the same, bit for bit."""
    choice = Choice("tiny", "synthetic", {"count": 60, "test": 0, "size": 8, "classes": 3})
    run = vary(dataset=choice, folds=3, fold=1, strategy=strategy, model=MOBILENET)
    run = vary(run, workers=2 if strategy is DDP else 1)
    _, clean = laboratory.conduct(run, "clean")

    folder = laboratory.data(choice)
    opened = data.open_dataset(folder)
    held_out = data.assign_folds(opened.labels, 3, run.seed) == 1
    assert held_out.sum() == 20
    for name in ("images", "moments"):
        array = np.array(getattr(opened, name))
        array[held_out] = 255 - array[held_out]
        np.save(folder / f"{name}.npy", array)
    opened.info["sha256"] = {name: data.sha256(folder / name) for name in data.ARRAYS}
    (folder / "dataset.json").write_text(json.dumps(opened.info))

    _, poisoned = laboratory.conduct(run, "poisoned")
    assert same_weights(clean, poisoned)


def test_scoring_is_exact_and_without_augmentation(laboratory):
    """The weights that are shipped, scored again one image at a time, give the same matrix."""
    run = vary(crop=2, flip=True, model=MOBILENET)
    metrics, weights = laboratory.conduct(run)
    opened = data.open_dataset(laboratory.data())
    mean, std = data.channel_statistics(opened.moments[:53], opened.images.shape)
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    from allcores import models

    model = models.build(run, opened)
    model.load_state_dict(weights)
    model.eval()
    confusion = np.zeros((3, 3), int)
    for image, label in zip(opened.images[53:], opened.labels[53:], strict=True):
        pixels = (torch.tensor(image) / 255 - mean) / std
        confusion[label, model(pixels[None].float()).argmax()] += 1
    assert metrics["confusion"] == confusion.tolist()


def test_channels_last_changes_the_layout_only(laboratory):
    run = vary(model=LENET)
    _, expected = laboratory.conduct(run, "contiguous")
    _, weights = laboratory.conduct(vary(run, memory_format="channels_last"), "channels_last")
    assert any(
        tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
        for tensor in weights.values()
        if tensor.dim() == 4
    )
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=1e-4)


def test_an_altered_dataset_is_an_error_not_a_training(laboratory):
    file = laboratory.data() / "images.npy"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"images\.npy is not what was prepared"):
        laboratory.conduct(RUN)


def test_a_dataset_without_a_test_set_needs_folds(laboratory):
    choice = Choice("tiny", "synthetic", {"count": 30, "test": 0, "size": 8, "classes": 3})
    with pytest.raises(ValueError, match="tiny has no test set of its own; use folds"):
        laboratory.conduct(vary(dataset=choice))


# Long enough to be caught in the middle, short enough to be run twice. 54 samples leave each of two
# workers two in the last batch: batch norm cannot be trained on a single one.
LONG = vary(
    dataset=Choice("even", "synthetic", RUN.dataset.options | {"count": 54}),
    epochs=15,
    model=MOBILENET,
    schedule=Choice("warm", "warm", {"cycles": 3}),
)


# Those whose outcome does not depend on timing. Each keeps something of its own for the next epoch.
RESUMED = {
    "serial": LONG,
    "ddp": using(DDP, 2, LONG),
    "ddp_three": using(DDP, 3, model=LENET, epochs=40),
    "parameter_server": using(
        Choice("servers", "parameter_server", {"servers": 2}), 2, epochs=60, schedule=LONG.schedule
    ),
    "local_sgd": using(Choice("local_sgd", "local_sgd", {"every": 7}), 2, epochs=60),
    "gossip": using(Choice("gossip", "gossip", {}), 3, epochs=60),
    "shared_memory": using(
        Choice("shared_memory", "shared_memory", {}),
        3,
        optimizer=Choice("Adam", "Adam", {"lr": 0.01, "amsgrad": True}),
        epochs=60,
    ),
}


@pytest.mark.parametrize("run", RESUMED.values(), ids=RESUMED)
def test_a_killed_run_ends_with_the_weights_of_one_never_killed(laboratory, run):
    _, expected = laboratory.conduct(run, "never_killed")

    latest = laboratory.work("killed") / "latest.pt"
    process = laboratory.train(run, "killed")
    while not latest.exists() or len(torch.load(latest)["epochs"]) < 3:
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = len(torch.load(latest)["epochs"])
    assert 0 < done < run.epochs, "killed in the middle"

    process = laboratory.train(run, "killed")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert f"resumed after epoch {done} of {run.epochs}" in output
    resumed = torch.load(laboratory.folder / "killed" / "weights.pt")
    assert same_weights(resumed, expected)
    metrics = results.read_metrics(laboratory.folder / "killed" / "metrics.json")
    assert len(metrics["epochs"]) == run.epochs


def interrupted(laboratory, run):
    """A work folder as a run leaves it that was killed after two epochs."""
    work = Work(laboratory.work("run"), identity_of(laboratory, run))
    epochs = [{"loss": 1.0, "lr": 0.1, "phases": {"compute": 1.0}}] * 2
    work.save({"epochs": epochs, "strategy": {}, "schedule": {}, "start_up_seconds": 0.0})


def identity_of(laboratory, run):
    from allcores import fingerprint

    info = json.loads((laboratory.data() / "dataset.json").read_text())
    sha256 = info["sha256"]["images.npy"]
    return run.to_json(), fingerprint.of_run(run), sha256, torch.__version__


def test_a_checkpoint_of_the_same_run_is_taken_up(laboratory):
    interrupted(laboratory, RUN)
    assert len(Work(laboratory.work("run"), identity_of(laboratory, RUN)).resume()["epochs"]) == 2


@pytest.mark.parametrize("part", ["settings", "code", "data", "torch"])
def test_a_checkpoint_of_other_settings_or_code_is_not_taken_up(laboratory, part):
    interrupted(laboratory, RUN)
    identity = list(identity_of(laboratory, RUN))
    position = ["settings", "code", "data", "torch"].index(part)
    identity[position] += "x"
    assert Work(laboratory.work("run"), identity).resume() is None


def test_a_truncated_checkpoint_is_not_taken_up(laboratory):
    interrupted(laboratory, RUN)
    latest = laboratory.work("run") / "latest.pt"
    latest.write_bytes(latest.read_bytes()[:-100])
    assert Work(laboratory.work("run"), identity_of(laboratory, RUN)).resume() is None


def test_an_edited_result_is_noticed(laboratory):
    laboratory.conduct(RUN)
    path = laboratory.folder / "run" / "metrics.json"
    content = json.loads(path.read_text())
    content["accuracy"] = 1.0
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="was changed after the training that wrote it"):
        results.read_metrics(path)
    path.write_text("{")
    with pytest.raises(ValueError, match="was changed"):
        results.read_metrics(path)


def test_two_threads_use_two_cores_and_no_more(laboratory):
    run = vary(threads_per_worker=2, epochs=1)
    process = laboratory.train(run)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    metrics = results.read_metrics(laboratory.folder / "run" / "metrics.json")
    assert metrics["machine"]["threads_per_process"] == 2
