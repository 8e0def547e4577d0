"""What the last lines of a call say, and what counts as done."""

import logging
import os
import resource
import sys
import termios
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from snakemake.logging import ColorizingTextHandler
from snakemake_interface_logger_plugins.common import LogEvent

from allcores import files
from allcores_study.campaign import commands
from allcores_study.campaign.run_jobs import RunJobs
from allcores_study.config import grid
from allcores_study.config.run import Conditions
from allcores_study.data import preparation
from allcores_study.records import identity, results_folder
from allcores_study.records.identity import Record
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.records.run_files import RUN_FILES
from allcores_study.training import progress
from allcores_study.watching import closing, journal, progress_line, state
from allcores_study.watching.events import Events
from allcores_study.watching.ledger import UpToDateCheck

STUDY = """
models:
  lenet: {batch_size: 8, epochs: 2, optimizer: {name: adam, lr: 0.1}}
datasets:
  tiny: {name: fake, count: 60, size: 8, classes: 3, seed: SEED}
studies:
  one: {datasets: [tiny], folds: 4, models: [lenet]}
"""


def snapshot(done):
    table = expanded()
    states = [state.DONE] * done + [state.WAITING] * (len(table.runs) - done)
    runs = dict(zip(table.runs, map(progress.RunProgress, states), strict=True))
    return state.CallSnapshot(table, None, [], runs)


def expanded(seed=0):
    return grid.expand(yaml.safe_load(STUDY.replace("SEED", str(seed))))


def begun(folder, *jobs):
    """The Events of a call in which jobs have begun: the rule of each, a wildcard and a log."""
    of_call = journal.Journal(folder, journal.CallRecord.of_this_process(2, {}))
    paths = lambda rule, wildcards: [*wildcards.values()] if rule == "train" else []  # noqa: E731
    events = Events(of_call, paths, lambda job: None)
    for number, (rule, title, log) in enumerate(jobs):
        of_job = {"rule_name": rule, "wildcards": {"": title}, "jobid": number, "threads": 1}
        of_job |= {"log": [Path(folder.path, log)], "rule_msg": ""}
        events.emit(SimpleNamespace(event=LogEvent.JOB_INFO, **of_job))
    return events


def ended_badly(events):
    """The states of these jobs once all have ended badly."""
    for number in events.jobs:
        events.emit(SimpleNamespace(event=LogEvent.JOB_ERROR, jobid=number, rule_msg=""))
    return [job.state for job in events.journal.jobs.values()]


def test_of_the_runs_of_a_job_that_was_stopped_those_that_had_begun_are_listed(tmp_path):
    folder, table = ResultsFolder(str(tmp_path)), expanded()
    trained, stopped, *others = table.runs
    noted = progress.ProgressFile()
    noted.start_file(tmp_path / "0.jsonl")
    noted.begin(table.runs[trained])
    noted.end(progress.TRAINED, trained)
    noted.begin(table.runs[stopped])
    noted.end(progress.STOPPED, stopped)
    of_job = (journal.STOPPED, 0.0, 0.0, 1, "", "", [trained, stopped, *others], str(noted.file))
    of_call = journal.Journal(folder, journal.CallRecord.of_this_process(2, {}))
    of_call.note(0, journal.JobRecord("train_several", "1 0", *of_job))
    said = [line for line in closing.lines(folder, table, of_call, ()) if "stopped: " in line]
    assert said == [f"  stopped: {stopped}"]


@pytest.mark.parametrize("told_to_stop", [True, False])
def test_what_a_call_that_is_told_to_stop_has_not_finished_has_not_failed(tmp_path, told_to_stop):
    """A run that wrote nothing, or only in an earlier call, has not begun."""
    folder, table = ResultsFolder(str(tmp_path)), expanded()
    silent, earlier, stopped, raised = table.runs
    (tmp_path / "earlier").write_text("RuntimeError: of an earlier call\n")
    os.utime(tmp_path / "earlier", (1, 1))
    for run in table.runs.values():  # of an earlier call
        Path(folder.run(run.path)).mkdir(parents=True)
        note(folder, run, progress.FAILED)
    names = {silent: "silent", earlier: "earlier", stopped: "stopped", raised: "raised"}
    jobs = [("train", path, name) for path, name in names.items()]
    events = begun(folder, ("assign_folds", "", "folds"), *jobs)
    events.is_told_to_stop = told_to_stop
    note(folder, table.runs[stopped], progress.STOPPED)
    note(folder, table.runs[raised], progress.FAILED)
    (tmp_path / "stopped").write_text("other words than those of an error\n")
    (tmp_path / "raised").write_text("RuntimeError: too much\n")
    states = ended_badly(events)
    expected = journal.STOPPED if told_to_stop else journal.FAILED
    assert states == [expected, expected, expected, journal.STOPPED, journal.FAILED]
    said = "\n".join(closing.lines(folder, table, events.journal, ()))
    assert f"  stopped: {stopped}" in said
    assert f"failed: train {raised}\n    RuntimeError: too much" in said
    assert said.count("failed: ") == (1 if told_to_stop else 4)
    # Who looks from outside reads the same.
    assert [job.state for job in journal.read_jobs(folder)] == states
    events.journal.close()


def test_the_answer_is_told_with_what_to_check_in_the_data(tmp_path):
    assert closing.answer(tmp_path) == []
    sentences = ["mlp scored best.", "OPTIMISTIC.", "Please check: d: 3 copies.", "Another."]
    (tmp_path / "verdict.txt").write_text("".join(f"{one}\n" for one in sentences))
    assert closing.answer(tmp_path) == [sentences[0], sentences[2]]
    (tmp_path / "verdict.txt").write_text("")
    assert closing.answer(tmp_path) == []


@pytest.mark.parametrize("touches", [False, True])
def test_an_answer_is_that_of_an_earlier_call_where_runs_were_trained_since(tmp_path, touches):
    folder, table = ResultsFolder(str(tmp_path)), expanded()
    study = Path(folder.study("one"))
    study.mkdir(parents=True)
    (study / "report.html").touch()
    (study / "verdict.txt").write_text("lenet reached 90 %.\n")
    os.utime(study / "report.html", (1e9, 1e9))
    path, *_ = table.runs
    record = journal.CallRecord.of_this_process(2, {path: 1.0} if touches else {})
    of_call = journal.Journal(folder, record)
    said = "\n".join(closing.lines(folder, table, of_call, ()))
    assert ("lenet reached 90 %." in said) == (not touches)
    assert ("(from an earlier invocation)" in said) == touches
    of_call.close()


def note(folder, run, state_of_run):
    """Leave what a run records that begins and ends."""
    noted = progress.ProgressFile()
    noted.start_file(folder.job(run.path, "jsonl"))
    noted.begin(run)
    noted.end(state_of_run)


def test_the_end_of_a_log_is_what_says_why(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "epoch 1/2\nTraceback (most recent call last):\n    raise RuntimeError(words)\n"
        "    ^^^^^^^^^^^^^^^^\nRuntimeError: first line\nsecond line\n\n"
        "srun: error: n1: task 0: Exited with exit code 1\nslurmstepd: error: *** STEP 7.1 ***\n"
    )
    job = journal.JobRecord("train", "mlp", journal.FAILED, 0.0, 0.0, 1, str(log), runs=["mlp"])
    first, *shown, last = closing.failure(job)
    assert first == "  failed: train mlp"
    assert shown[-2:] == ["    RuntimeError: first line", "    second line"]
    assert last == f"    its log: {log}"
    log.write_text("srun: error: n1: task 0: Bus error\n\n")
    assert "    srun: error: n1: task 0: Bus error" in closing.failure(job)


def test_what_asks_for_more_cores_is_what_the_call_is_in(monkeypatch):
    """SLURM counts hardware threads."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert commands.cores_flag(3) == "--cores 3"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert commands.cores_flag(3) == "--cpus-per-task 3"
    monkeypatch.setenv("ALLCORES_CORE_CPUS", "2")
    assert commands.cores_flag(3) == "--cpus-per-task 6"


def test_a_retry_asks_for_more_memory():
    jobs = object.__new__(RunJobs)
    jobs._runs = lambda wildcards: [None]
    memory = SimpleNamespace(memory_mb=lambda run: 1200)
    jobs.call, jobs.cores = SimpleNamespace(estimates=memory), 2
    assert [jobs.memory_mb(None, attempt) for attempt in (1, 2, 3)] == [1200, 2400, 3600]
    jobs.cores = None  # each is submitted, with Snakemake's own processes
    assert jobs.memory_mb(None, 1) == 1500


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
    assert not UpToDateCheck(folder, table)(path), "there is nothing"
    place = Path(folder.run(path))
    place.mkdir(parents=True)
    for name in RUN_FILES:
        (place / name).touch()
    assert not UpToDateCheck(folder, table)(path), "an empty metrics.json"
    made_of = identity.made_of(identity.before_data(run), preparation.made_of(run.dataset))
    digests = {"weights.pt": files.sha256(os.devnull)}
    content = {"conditions": vars(Conditions())}
    Record(made_of, digests, {}, content).write(place / "metrics.json")
    assert UpToDateCheck(folder, table)(path)
    (place / "weights.pt").write_text("damage")
    assert not UpToDateCheck(folder, table)(path)
    (place / "weights.pt").write_text("")
    check = UpToDateCheck(folder, table)
    assert check.table_of_these().studies == {"one": [path]}
    assert path not in check.table_of_these().missing["one"]
    other = expanded(seed=1)
    (same,) = set(other.runs) & {path}
    assert not UpToDateCheck(folder, other)(same)


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
        monkeypatch.setattr(os, "getuid", lambda: 1 << 30)  # a user that nobody knows
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
    assert closing.writable_problem(tmp_path / "results") == []
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        (finding,) = closing.writable_problem(tmp_path / "results")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    said = "File too large: 1,048,576 bytes cannot be written; make room"
    assert finding == f"{tmp_path}: {said}"


def test_what_a_group_shares_stays_shared(tmp_path):
    """A member whose umask shuts others out replaces a file, and writes a new one."""
    shared = tmp_path / "config.txt"
    shared.write_text("old")
    shared.chmod(0o664)
    os.chown(shared, -1, 1000)
    tmp_path.chmod(0o2770)
    before = os.umask(0o077)
    try:
        files.write_text(shared, "new")
        files.write_json(tmp_path / "other.json", {})
    finally:
        os.umask(before)
    status = shared.stat()
    assert (shared.read_text(), status.st_mode & 0o777, status.st_gid) == ("new", 0o664, 1000)
    assert (tmp_path / "other.json").stat().st_mode & 0o777 == 0o660


def test_a_results_folder_that_cannot_be_read_is_told_with_its_owner(tmp_path, monkeypatch):
    results_folder.note_origin([tmp_path / "mine.yaml"], tmp_path)

    def refuse(path, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)
    (line,) = results_folder.foreign([tmp_path / "mine.yaml"], tmp_path)
    assert line.endswith(f"config.txt cannot be read; ask root to run `chmod -R g+r {tmp_path}`")


def test_a_journal_of_another_member_is_replaced(tmp_path):
    folder = ResultsFolder(str(tmp_path))
    record = journal.CallRecord.of_this_process(2, {})
    journal.Journal(folder, record).close()
    first = Path(folder.call_file(journal.JOBS)).stat().st_ino
    kept = Path(folder.call_file(journal.JOBS)).open()  # so that its number is not used again
    journal.Journal(folder, record).close()
    assert Path(folder.call_file(journal.JOBS)).stat().st_ino != first
    kept.close()


def test_the_line_at_the_foot_of_a_terminal_is_written_over_and_goes(monkeypatch):
    reading, writing = os.openpty()
    termios.tcsetwinsize(writing, (24, 80))
    with os.fdopen(writing, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        line = progress_line.ProgressLine(lambda: "", None)
        for count in (1, 2, 3):
            line.show(snapshot(done=count))
        line.close()
        terminal.flush()
        shown = ""
        while "3 done" not in shown:  # what a terminal shows may come in parts
            shown += os.read(reading, 10_000).decode()
    os.close(reading)
    assert "1 done" in shown
    assert shown.count("\r") >= 2 and "\n" not in shown
    assert all(len(part) <= 79 for part in shown.split("\r"))


@pytest.mark.parametrize("no_colour", ["", "1"])
def test_what_is_logged_stands_above_the_line(monkeypatch, no_colour):
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setenv("TERM", "xterm")
    reading, writing = os.openpty()
    termios.tcsetwinsize(writing, (24, 80))
    logger = logging.Logger("of a test")
    with os.fdopen(writing, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        logger.addHandler(ColorizingTextHandler(stream=terminal))
        line = progress_line.ProgressLine(lambda: None, logger)
        line.show(snapshot(done=1))
        logger.error("  failed: train x\n    its log: y")
        line.show(snapshot(done=2))
        line.close()
        sys.stderr.write("end")
        terminal.flush()
        shown = ""
        while "end" not in shown:
            shown += os.read(reading, 10_000).decode()
    os.close(reading)
    assert "failed: train x\r\n    its log: y" in shown and "2 done" in shown
    assert ("\033[31m" in shown) == (not no_colour)


def test_findings_end_a_call_in_lines():
    with pytest.raises(SystemExit, match=r"^The config cannot be run:\nx$"):
        closing.stop_at(["x"])
