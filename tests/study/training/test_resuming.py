"""Runs that are killed go on where they were; checkpoints that cannot be trusted are not used."""

import errno
import math
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import RUN, same_weights, using, vary
from slurm_lab import slow_model

from allcores.files import read_json
from allcores.machine import costs, lifetime
from allcores_study.config.run import Entry
from allcores_study.records import identity
from allcores_study.training import checkpoints, experiment
from allcores_study.training.checkpoints import Checkpoints


def number_of(file):
    """The inode of a file, another for each that is written; None: there is none just now."""
    try:
        return file.stat().st_ino
    except FileNotFoundError:  # between two renamings
        return None


def test_a_killed_run_of_shared_memory_ends_with_the_weights_of_one_never_killed(
    laboratory, monkeypatch
):
    """Some calls are killed soon after they have saved in the middle of the only epoch, so that an
    epoch ends some day that takes longer than a run may last."""
    slow_model(laboratory.folder, seconds=0.02, epochs=1)
    monkeypatch.syspath_prepend(laboratory.folder)
    many = Entry("many", "fake", RUN.dataset.options | {"count": 200})
    run = using(Entry("shared_memory", "shared_memory", {}), 2, dataset=many, batch_size=2)
    run = vary(run, model=Entry("slow", "slow:Net", {}), epochs=1)
    _, expected = laboratory.trained(run, "never_killed")
    latest, notes = laboratory.checkpoints("killed") / "latest.allcores", []
    while not (laboratory.folder / "killed" / "metrics.json").exists():
        before = number_of(latest)
        process = laboratory.train(run, "killed", more={"save_every": 0.24})
        while process.poll() is None and number_of(latest) in (None, before):
            time.sleep(0.01)
        if len(notes) < 3:
            process.kill()
        notes.append(process.communicate()[0])
    kills = len(notes) - 1
    assert kills >= 1
    assert re.search(r"resumed after epoch 0 of 1 and \d+ of 100 steps", "".join(notes))
    metrics = read_json(laboratory.folder / "killed" / "metrics.json")
    assert len(metrics["epochs"]) == run.epochs
    assert metrics["resumed"] == kills
    assert metrics["cpu_seconds"] == pytest.approx(
        sum(session["cpu_seconds"] for session in metrics["sessions"])
    )
    assert same_weights(torch.load(laboratory.folder / "killed" / "weights.pt"), expected)


def record(epochs):
    """What a checkpoint says of so many epochs."""
    phases = {"loss": 1.0, "lr": 0.1, "phases": {"compute": 1.0}}
    return {"epochs": [phases] * epochs, "shared": {}, "schedule": {}, "start_up_seconds": 0.0}


def resumed_epochs(folder, identity="mine", every_epoch=False, epochs=9):
    """How many epochs a run of that identity goes on from; it lets go of the folder again."""
    with Checkpoints(folder, identity, epochs, every_epoch) as opened:
        checkpoint = opened.latest()
    return len(checkpoint["epochs"]) if checkpoint else None


def interrupted(folder, epochs=(1, 2), weights=()):
    """The folder of checkpoints as a run leaves it that was killed."""
    with Checkpoints(folder, "mine", 9, every_epoch=bool(weights)) as opened:
        for count in epochs:
            opened.save(record(count))
        for epoch in weights:
            opened.save_weights([{}] * (epoch + 1), {"w": torch.ones(3)})
    return folder


def test_short_epochs_are_not_spent_on_checkpoints(laboratory, monkeypatch):
    save, saved = Checkpoints.save, laboratory.folder / "saved"

    def count(self, checkpoint):
        save(self, checkpoint)
        with saved.open("a") as file:
            file.write("x")

    monkeypatch.setattr(Checkpoints, "save", count)
    metrics, _ = laboratory.trained(vary(epochs=200))
    assert 1 <= len(saved.read_text()) <= 2 + metrics["ended"] - metrics["started"]


def test_epochs_since_the_last_checkpoint_are_known_until_it_is_resumed_from(tmp_path):
    folder = interrupted(tmp_path)
    with Checkpoints(folder, "mine", 9) as opened:
        opened.note({"loss": math.nan})
        opened.note({"loss": 2.0})
        assert [epoch["loss"] for epoch in opened.trained()["epochs"][2:]] == [
            pytest.approx(math.nan, nan_ok=True),
            2.0,
        ]
    with Checkpoints(folder, "mine", 9) as opened:
        assert len(opened.trained()["epochs"]) == 2
        opened.note({"loss": 3.0})
        opened.save(record(3))
        assert len(opened.trained()["epochs"]) == 3


def test_the_best_weights_of_the_checkpoint_and_since_stay(tmp_path):
    losses = [5, 4, 6, 3, 2, 7, 1]

    def kept():
        return [file.name[8:13] for file in sorted(tmp_path.glob("weights_*"))]

    def epochs(count):
        return [
            epoch | {"validation_loss": losses[i]}
            for i, epoch in enumerate(record(9)["epochs"][:count])
        ]

    with Checkpoints(tmp_path, "mine", 9) as opened:
        for count in range(1, 8):
            opened.save_weights(epochs(count), {"w": torch.ones(3)})
            if count in (3, 5):  # the best of those is epoch 2, then 5
                opened.save(record(count) | {"epochs": epochs(count)})
        assert kept() == ["00004", "00006"]
    with Checkpoints(tmp_path, "mine", 9) as opened:
        assert len(opened.latest()["epochs"]) == 5
        opened.save(record(6) | {"epochs": epochs(6)})
        assert kept() == ["00004"]


def test_a_checkpoint_of_another_identity_is_not_resumed_from(tmp_path):
    folder = interrupted(tmp_path)
    assert resumed_epochs(folder, "of other settings") is None
    assert resumed_epochs(folder) is None, "nor is it kept"


def test_of_a_flipped_bit_nothing_is_resumed(tmp_path):
    """Wherever it is."""
    folder = interrupted(tmp_path)
    latest = folder / "latest.allcores"
    good = latest.read_bytes()
    for position in np.random.default_rng(0).integers(0, 8 * len(good), 50):
        damaged = bytearray(good)
        damaged[position // 8] ^= 1 << (position % 8)
        latest.write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged"):
            checkpoints.load(latest)
    assert resumed_epochs(folder) is None


@pytest.mark.parametrize("damage", ["lost", "flipped"])
def test_a_run_with_curves_begins_anew_when_weights_are_lost(tmp_path, damage):
    folder = interrupted(tmp_path, weights=[0, 1])
    assert resumed_epochs(folder, every_epoch=True) == 2
    file = folder / "weights_00000.allcores"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.unlink() if damage == "lost" else file.write_bytes(content)
    assert resumed_epochs(folder) == 2, "they are scored with curves only"
    assert resumed_epochs(folder, every_epoch=True) is None


def test_a_finished_run_without_its_weights_begins_anew(tmp_path):
    folder = interrupted(tmp_path, weights=[1])
    assert resumed_epochs(folder, epochs=2) == 2
    (folder / "weights_00001.allcores").unlink()
    assert resumed_epochs(folder, epochs=2) is None


@pytest.mark.parametrize("line", ["x y z a b", "1 nan nan inf 0", "\0\0\0", "1 2"])
def test_damaged_lines_of_the_trace_do_not_count(tmp_path, line):
    file = tmp_path / "trace"
    file.write_text(f"1 10.0 0.0 0 0\n{line}\n1 11.0 0.5 7 2.5\n")
    first, mine = costs.Watch(file).sessions
    assert first.trace == [(10.0, 0.0), (11.0, 0.5)]
    assert (first.peak_memory, first.stopped) == (7, 2.5)
    assert mine.cpu == 0
    file.write_bytes(b"1 10.0 0.0 0 0\n\xb8\xff 3 4 5 6\n")
    assert len(costs.Watch(file).sessions) == 2


def test_a_checkpoint_that_cannot_be_read_for_now_is_kept(tmp_path, monkeypatch):
    folder = interrupted(tmp_path)

    def fail(path):
        raise OSError(errno.EIO, "Input/output error", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", fail)
        with pytest.raises(OSError, match="Input/output error"):
            Checkpoints(folder, "mine", 9)
    assert resumed_epochs(folder) == 2


def test_foreign_files_are_refused_and_left(laboratory):
    folder = laboratory.checkpoints("run")
    folder.mkdir(parents=True)
    thesis = folder / "thesis.tex"
    thesis.write_text("chapter")
    output = laboratory.finish(RUN, expect=1)
    assert "contains thesis.tex, which is not a checkpoint of a run" in output
    assert "Traceback" not in output
    assert [thesis] == list(folder.iterdir())


def test_a_run_that_is_told_to_stop_at_its_very_end_has_ended(laboratory, monkeypatch):
    """Once metrics.json is there; its checkpoints are going, so nothing could go on."""

    def stop(*_):
        raise KeyboardInterrupt

    def remove(checkpoints):
        os.kill(os.getpid(), signal.SIGTERM)
        remove_all(checkpoints)

    remove_all = Checkpoints.remove
    numbers = [*lifetime.signals_to_stop(), signal.SIGALRM]
    before = {number: signal.signal(number, stop) for number in numbers}
    monkeypatch.setattr(Checkpoints, "remove", remove)
    request = laboratory.request(RUN, pinning=False, ends_process=True)
    try:
        metrics = experiment.train_and_score(request)
        os.kill(os.getpid(), signal.SIGTERM)  # nor is it stopped later
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert metrics["shipped_epoch"] == RUN.epochs
    assert not laboratory.checkpoints("run").exists()


def test_results_that_were_half_written_are_written_again(laboratory, monkeypatch):
    """The run was killed between its weights and its metrics."""
    laboratory.data()
    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(identity, "write_json", lambda *_: (_ for _ in ()).throw(MemoryError))
        laboratory.trained(RUN)
    assert (laboratory.folder / "run" / "weights.pt").exists()
    metrics, _ = laboratory.trained(RUN)
    assert len(metrics["sessions"]) == 2


def test_a_resumed_run_records_all_its_sessions(laboratory):
    slow_model(laboratory.folder, seconds=0.01, epochs=60)
    run = vary(model=Entry("slow", "slow:Net", {}), epochs=60)
    process = laboratory.train(run, forked=False)
    trace = laboratory.checkpoints("run") / "trace.allcores"
    # On a machine with other work the first checkpoint may come later than that many lines.
    latest = trace.with_name("latest.allcores")
    while not latest.exists() or trace.read_text().count("\n") < 4:
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.communicate()
    with trace.open("a") as file:
        file.write("1 99")  # a line that was cut short
    lines = trace.read_text().splitlines()[:-1]
    laboratory.finish(run)  # without a checkpoint after each epoch
    metrics = read_json(laboratory.folder / "run" / "metrics.json")
    first, second = metrics["sessions"]
    assert metrics["started"] == first["started"] == pytest.approx(float(lines[0].split()[1]))
    assert first["ended"] == float(lines[-1].split()[1]) < second["started"]
    assert first["cpu_seconds"] == float(lines[-1].split()[2]) > 0
    assert metrics["cpu_seconds"] == first["cpu_seconds"] + second["cpu_seconds"]
    lasted = sum(session["ended"] - session["started"] for session in metrics["sessions"])
    assert metrics["training_seconds"] < lasted
    for session in metrics["sessions"]:
        used = [seconds for _, seconds in session["trace"]]
        assert used == sorted(used) and len(used) >= 2
