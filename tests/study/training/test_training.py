"""The loop from start to results: no leak, exact scores, divergence, what a run leaves behind."""

import json
import os
import re
from dataclasses import replace

import numpy as np
import patience
import pytest
import torch
from conftest import DDP, LENET, MOBILENET, RUN, same_weights, using, vary

from allcores.files import read_json, sha256
from allcores_study.config.run import Entry, Run
from allcores_study.data import folds, storage
from allcores_study.data.folds import Assignable
from allcores_study.data.scaling import channel_statistics
from allcores_study.records.run_files import RUN_FILES
from allcores_study.training import experiment, loop

SLOW = vary(epochs=3, model=MOBILENET)


def test_dropout_is_drawn_anew_in_each_epoch_and_by_each_worker(laboratory, monkeypatch, tmp_path):
    def seeded(*seeds):
        (tmp_path / "-".join(map(str, seeds))).touch()

    monkeypatch.setattr(loop, "seed_dropout", seeded)
    laboratory.trained(using(DDP, 2))
    assert sorted(file.name for file in tmp_path.glob("*-*")) == [
        "0-0-0",
        "0-0-1",
        "0-1-0",
        "0-1-1",
    ]


def test_a_run_leaves_everything_and_no_checkpoint(laboratory):
    metrics, _ = laboratory.trained(SLOW, curves=True)
    written = read_json(laboratory.folder / "run" / "metrics.json")
    files, loaded = written.pop("files"), written.pop("loaded")
    assert written.pop("made_of")
    assert isinstance(loaded, dict)
    assert set(files) == {*RUN_FILES} - {"metrics.json"}
    assert written == json.loads(json.dumps(metrics))
    assert Run.from_json(json.dumps(written["settings"])) == SLOW
    confusion = np.array(written["confusion"])
    assert confusion.sum() == written["held_out_samples"] == 20
    assert written["accuracy"] == np.trace(confusion) / 20
    assert [epoch["epoch"] for epoch in written["epochs"]] == [1, 2, 3]
    for epoch in written["epochs"]:
        assert 0 <= epoch["accuracy"] <= 1
        assert set(epoch["phases"]) == {"data", "compute", "update", "wait"}
    assert written["epochs"][-1]["accuracy"] == written["accuracy"]
    assert written["training_seconds"] < written["ended"] - written["started"]
    assert written["peak_memory_bytes"] > 50e6
    assert written["machine"]["torch"] == torch.__version__
    assert written["machine"]["cores_allowed"] == len(os.sched_getaffinity(0))
    (session,) = written["sessions"]
    rows = session["trace"]
    assert rows == sorted(rows)
    assert rows[0][1] == 0 < rows[-1][1]
    assert rows[-1] == pytest.approx([written["ended"], written["cpu_seconds"]], abs=1e-3)
    assert not laboratory.checkpoints("run").exists()


def test_only_the_last_epoch_is_scored_without_curves(laboratory):
    metrics, _ = laboratory.trained(vary(epochs=2))
    assert metrics["epochs"][0]["accuracy"] is None
    assert metrics["epochs"][1]["accuracy"] == metrics["accuracy"]


def test_training_learns(laboratory):
    tiny = Entry("tiny", "fake", {"count": 300, "test": 200, "size": 12, "noise": 0.3})
    # At 0.05 it would be at the edge of divergence, and the processor's rounding decide.
    gentle = Entry("SGD", "SGD", {"lr": 0.02, "momentum": 0.9})
    run = vary(dataset=tiny, model=Entry("lenet", "lenet", {}), epochs=8, crop=0, flip=False)
    run = vary(run, optimizer=gentle)
    metrics, _ = laboratory.trained(run)
    assert metrics["accuracy"] > 0.9
    assert metrics["epochs"][-1]["loss"] < metrics["epochs"][0]["loss"] / 3


@pytest.mark.parametrize("strategy", [RUN.strategy, DDP], ids=["serial", "ddp"])
def test_training_never_opens_the_held_out_fold(laboratory, strategy):
    """Whatever stands there, the weights come out the same, bit for bit."""
    entry = Entry("tiny", "fake", {"count": 60, "test": 0, "size": 8, "classes": 3})
    run = vary(dataset=entry, folds=3, fold=1, strategy=strategy, model=MOBILENET)
    run = vary(run, workers=2 if strategy is DDP else 1)
    _, clean = laboratory.trained(run, "clean")

    folder = laboratory.data(entry)
    opened = storage.open_dataset(folder)
    held_out = Assignable(opened.targets).folds(3, run.seed) == 1
    assert held_out.sum() == 20
    for name in ("inputs", "pixel_sums"):
        array = np.array(getattr(opened, name))
        array[held_out] = 255 - array[held_out]
        np.save(folder / f"{name}.npy", array)
    digests = {name: sha256(folder / name) for name in opened.record.files}
    replace(opened.record, files=digests).write(folder / "dataset.json")

    _, poisoned = laboratory.trained(run, "poisoned")
    assert same_weights(clean, poisoned)


def test_scoring_is_exact_and_without_augmentation(laboratory):
    """The weights that are shipped, scored again one image at a time, give the same matrix."""
    run = vary(crop=2, flip=True, model=MOBILENET)
    metrics, weights = laboratory.trained(run)
    opened = storage.open_dataset(laboratory.data())
    mean, std = channel_statistics(opened.pixel_sums[:53], opened.inputs.shape)
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    from allcores_study.training import models

    model = models.build(run, opened.shape, opened.task.outputs)
    model.load_state_dict(weights)
    model.eval()
    confusion = np.zeros((3, 3), int)
    for image, label in zip(opened.inputs[53:], opened.targets[53:], strict=True):
        pixels = (torch.tensor(image) / 255 - mean) / std
        confusion[label, model(pixels[None].float()).argmax()] += 1
    assert metrics["confusion"] == confusion.tolist()


def test_channels_last_changes_the_layout_only(laboratory):
    run = vary(model=LENET)
    _, expected = laboratory.trained(run, "contiguous")
    _, weights = laboratory.trained(vary(run, memory_format="channels_last"), "channels_last")
    assert any(
        tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
        for tensor in weights.values()
        if tensor.dim() == 4
    )
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=1e-4)


def test_a_dataset_without_a_test_set_needs_folds(laboratory):
    entry = Entry("tiny", "fake", {"count": 30, "test": 0, "size": 8, "classes": 3})
    with pytest.raises(ValueError, match="tiny has no test set of its own; use folds"):
        laboratory.trained(vary(dataset=entry))


DIVERGING = vary(optimizer=Entry("SGD", "SGD", {"lr": 1e30}), epochs=3)


@pytest.mark.parametrize(
    "run",
    [DIVERGING, using(DDP, 2, DIVERGING), using(Entry("h", "hogwild", {}), 2, DIVERGING)],
    ids=["serial", "ddp", "hogwild"],
)
def test_a_run_that_diverges_stops_and_is_recorded_as_such(laboratory, run):
    process = laboratory.train(run)
    output, _ = process.communicate(timeout=patience.seconds(100))
    assert process.returncode == 0, output
    assert re.search(
        r"diverged: the loss is not finite in epoch 1, step \d+, learning rate", output
    )
    metrics = read_json(laboratory.folder / "run" / "metrics.json")
    assert metrics["diverged"]["epoch"] == 1
    assert metrics["accuracy"] is metrics["loss"] is metrics["confusion"] is None
    assert metrics["epochs"] == []
    assert torch.load(laboratory.folder / "run" / "weights.pt") == {}
    assert "NaN" not in (laboratory.folder / "run" / "metrics.json").read_text()
    assert not laboratory.checkpoints("run").exists()


def test_what_the_last_update_breaks_shows_when_it_is_scored(laboratory):
    # One epoch of one batch: the loss is finite, what the weights after it give is not.
    run = vary(DIVERGING, epochs=1, batch_size=53)
    metrics, _ = laboratory.trained(run)
    assert metrics["diverged"] == {"epoch": 1, "step": None, "lr": 1e30}
    assert len(metrics["epochs"]) == 1


def test_the_rate_that_is_recorded_is_the_schedules(laboratory):
    """Not the optimizer's, from which this schedule begins elsewhere."""
    lower = Entry("lower", "multistep", {"milestones": [0.0]})
    run = vary(DIVERGING, epochs=1, batch_size=53, schedule=lower)
    metrics, _ = laboratory.trained(run)
    assert metrics["diverged"]["step"] is None
    assert metrics["diverged"]["lr"] == metrics["epochs"][0]["lr"] < 1e30


@pytest.mark.parametrize(
    "damage", [lambda folds: folds[1:] + folds[:1], lambda folds: folds[:-1]], ids=["edit", "cut"]
)
def test_edited_folds_are_refused(laboratory, damage):
    entry = Entry("tiny", "fake", {"count": 60, "test": 0, "size": 8, "classes": 3})
    folder = laboratory.data(entry)
    assignable = Assignable.of(storage.open_dataset(folder))
    file = laboratory.folder / "folds.json"
    folds.write(file, assignable, 3, 0, 0)
    run = vary(dataset=entry, folds=3, fold=1)

    request = laboratory.request(run, fold_file=file)
    experiment.train_and_score(request)
    with pytest.raises(ValueError, match="changed since the folds were assigned"):
        folds.read(file, Assignable(assignable.targets[::-1]), 3, 0, 0)
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"fold_of": damage(content["fold_of"])}))
    with pytest.raises(ValueError, match="is damaged"):
        experiment.train_and_score(request)


def test_an_edited_result_is_noticed(laboratory):
    laboratory.trained(RUN)
    path = laboratory.folder / "run" / "metrics.json"
    content = json.loads(path.read_text())
    content["accuracy"] = 1.0
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="is damaged, or was changed since it was written"):
        read_json(path)
    path.write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        read_json(path)


def test_two_threads_use_two_cores_and_no_more(laboratory):
    run = vary(model=Entry("mlp", "mlp", {"hidden": [1024, 1024]}), batch_size=53)
    process = laboratory.train(vary(run, threads_per_worker=2, epochs=30))
    output, _ = process.communicate(timeout=patience.seconds(300))
    assert process.returncode == 0, output
    metrics = read_json(laboratory.folder / "run" / "metrics.json")
    assert metrics["machine"]["threads_per_process"] == 2
    pinned = metrics["cores"]["pinned"]
    if pinned is None:
        pytest.skip("the cores are leased to others")
    assert len(set(pinned)) == 2
    assert metrics["cpu_seconds"] < 2.1 * (metrics["ended"] - metrics["started"])
