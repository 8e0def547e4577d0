"""What the last lines of a call say, and what counts as done."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from allcores import files
from allcores.campaign import call, closing, journal, state, why
from allcores.campaign.run_jobs import RunJobs
from allcores.data import preparation
from allcores.files import write_json
from allcores.study import fingerprint, grid, identity
from allcores.study.results_folder import RUN_FILES, ResultsFolder

STUDY = """
models:
  lenet: {batch_size: 8, epochs: 2, optimizer: {name: adam, lr: 0.1}}
datasets:
  tiny: {name: synthetic, count: 60, size: 8, classes: 3, seed: SEED}
studies:
  one: {datasets: [tiny], folds: 3, models: [lenet]}
"""


def expanded(seed=0):
    return grid.expand(yaml.safe_load(STUDY.replace("SEED", str(seed))))


def failed(rule, title, log=""):
    return journal.JobRecord(rule, title, journal.FAILED, time.time(), time.time(), 1, log)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_what_a_call_that_is_told_to_stop_has_not_finished_has_not_failed(tmp_path, is_stopped):
    folder, table = ResultsFolder(str(tmp_path)), expanded()
    silent, stopped, raised = table.runs
    of_call = journal.Journal(folder, journal.CallRecord.of_this_process(2, False, {}))
    (tmp_path / "stopped").write_text("epoch 1/2\ntrain.py: stopped; the same call goes on\n")
    (tmp_path / "raised").write_text("RuntimeError: too much\n")
    jobs = [
        failed("choose", ""),
        failed("train", silent, str(tmp_path / "silent")),
        failed("train", stopped, str(tmp_path / "stopped")),
        failed("train", raised, str(tmp_path / "raised")),
    ]
    for number, job in enumerate(jobs):
        of_call.note(number, job)
    said = "\n".join(closing.lines(folder, table, of_call, is_stopped))
    of_call.close()
    assert f"failed: train {raised}\n    RuntimeError: too much" in said
    assert stopped not in said
    assert ("failed: choose" not in said) == is_stopped
    assert (silent not in said) == is_stopped


def test_the_end_of_a_log_is_what_says_why(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "epoch 1/2\nTraceback (most recent call last):\n    raise RuntimeError(words)\n"
        "    ^^^^^^^^^^^^^^^^\nRuntimeError: first line\nsecond line\n\n"
        "srun: error: n1: task 0: Exited with exit code 1\nslurmstepd: error: *** STEP 7.1 ***\n"
    )
    first, *shown, last = closing.failure(failed("train", "mlp", str(log)))
    assert first == "  failed: train mlp"
    assert shown[-2:] == ["    RuntimeError: first line", "    second line"]
    assert last == f"    its log: {log}"
    log.write_text("srun: error: n1: task 0: Bus error\n\n")
    assert "    srun: error: n1: task 0: Bus error" in closing.failure(
        failed("train", "", str(log))
    )


def test_what_asks_for_more_cores_is_what_the_call_is_in(monkeypatch):
    """SLURM counts hardware threads."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert call._flag(3) == "--cores 3"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert call._flag(3) == "--cpus-per-task 3"
    monkeypatch.setenv("ALLCORES_CORE_CPUS", "2")
    assert call._flag(3) == "--cpus-per-task 6"


def test_a_retry_asks_for_more_memory_and_not_for_more_than_a_node_has(monkeypatch):
    jobs = object.__new__(RunJobs)
    jobs.estimates = SimpleNamespace(memory_mb=lambda run: 1200)
    assert [jobs._memory_mb(None, attempt) for attempt in (1, 2, 3)] == [1200, 2400, 3600]
    monkeypatch.setenv("ALLCORES_NODE_MB", "3000")
    assert [jobs._memory_mb(None, attempt) for attempt in (1, 2, 3)] == [1200, 2400, 3000]
    monkeypatch.setenv("ALLCORES_NODE_MB", "1000")
    assert jobs._memory_mb(None, 1) == 1200, "then it is refused, with what it needs"


def test_a_damaged_file_of_code_says_nothing(tmp_path):
    folder, (run, *_) = ResultsFolder(str(tmp_path)), expanded().runs.values()
    why.write_code(folder, [run])
    code = fingerprint.of_run(run)
    assert why._of_code(folder, run, code) == ""
    next(tmp_path.rglob("*.json")).write_text("[]")
    assert why._of_code(folder, run, code).startswith("another version, whose")


def test_what_was_kept_of_files_that_are_gone_is_forgotten(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
        kept = files.KeptDigests(tmp_path / "kept.json")
        kept.of(tmp_path / name)
        kept.save()
        (tmp_path / name).unlink()
    (tmp_path / "three").touch()
    kept = files.KeptDigests(tmp_path / "kept.json")
    kept.of(tmp_path / "three")
    kept.save()
    assert set(files.read_json(tmp_path / "kept.json")) == {str(tmp_path / "three")}


def test_results_of_other_data_are_not_done(tmp_path):
    folder, table = ResultsFolder(str(tmp_path)), expanded()
    (path, run), *_ = table.runs.items()
    assert not state.Current(folder, table)(path), "there is nothing"
    place = Path(folder.run(path))
    place.mkdir(parents=True)
    for name in RUN_FILES:
        (place / name).touch()
    assert not state.Current(folder, table)(path), "an empty metrics.json"
    made_of = identity.made_of(identity.before_data(run), preparation.made_from(run.dataset))
    of_run = {"curves": False, "exclusive": False, "generation": 0, "made_of": made_of}
    digests = {"epochs.csv": files.sha256(os.devnull)}
    content = {"files": digests, "conditions": of_run, "loaded": {}}
    write_json(place / "metrics.json", content)
    assert state.Current(folder, table)(path)
    (place / "epochs.csv").write_text("damage")
    assert not state.Current(folder, table)(path)
    (place / "epochs.csv").write_text("")
    other = expanded(seed=1)
    (same,) = set(other.runs) & {path}
    assert not state.Current(folder, other)(same)


@pytest.mark.parametrize(
    ("home", "cache", "folder"),
    [
        ("/home/me", "", "/home/me/.cache/allcores"),
        ("/home/me", "/scratch/me", "/scratch/me/allcores"),
        ("/home/me", "scratch", "/home/me/.cache/allcores"),
        (None, "", "/dev/null/allcores"),
    ],
)
def test_what_is_kept_for_a_user_lies_nowhere_without_a_home(monkeypatch, home, cache, folder):
    if home:
        monkeypatch.setenv("HOME", home)
    else:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(os, "getuid", lambda: 1 << 30)  # of whom nobody knows
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    assert str(files.cache_folder()) == folder
    if not home:
        kept = files.KeptDigests(files.cache_folder() / "kept.json")
        kept.of(__file__)
        kept.save()


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="No space left"):
        (tmp_path / "file.part").symlink_to("/dev/full")
        files.write_text(tmp_path / "file", "text")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call._unusable(tmp_path / "results") == []
    monkeypatch.setattr(call, "LEAST_ROOM", 1 << 62)
    (finding,) = call._unusable(tmp_path / "results")
    assert finding.startswith(str(tmp_path))
    assert finding.endswith("bytes are free; make room")
