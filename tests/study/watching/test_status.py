"""What one can see of a call: how far it is, what failed, and why something would run again."""

import dataclasses
import re
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

import patience
import pytest
import yaml
from conftest import ENVIRONMENT, program, vary
from patience import wait_for
from project import RUNS, copy, miniature

from allcores_study.config import grid
from allcores_study.config.grid import Table
from allcores_study.config.run import Conditions
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.training import progress
from allcores_study.training.progress import RunProgress
from allcores_study.watching import closing, journal, state
from allcores_study.watching.ledger import Ledger
from allcores_study.watching.progress_line import CallProgress
from allcores_study.watching.state import DONE, FAILED, RUNNING, WAITING
from allcores_study.watching.status import Status

# Fails until there is a file `mended`.
FAILS = """
from pathlib import Path

import torch


class Net(torch.nn.Sequential):
    def __init__(self, channels, image_size, classes):
        pixels = channels * image_size[0] * image_size[1]
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(pixels, classes))
        self.steps = 0

    def forward(self, images):
        self.steps += self.training
        if self.steps > 4 and not Path("mended").exists():
            raise RuntimeError("the third step is too much")
        return super().forward(images)
"""


def status(project, *arguments):
    scripts = project.folder / "scripts"
    command = program("status") if scripts.is_symlink() else [sys.executable, scripts / "status.py"]
    command += arguments
    command += ["--configfile", project.config]
    run = subprocess.run(
        list(map(str, command)), cwd=project.folder, env=ENVIRONMENT, text=True, capture_output=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    project = copy(tmp_path)
    command = [sys.executable, project.folder / "scripts" / "status.py"]
    process = subprocess.Popen(
        [*command, "--configfile", project.config],
        cwd=project.folder,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=patience.seconds(60)) == 0


def test_what_failed_is_told_with_its_reason_and_how_to_run_it_again(tmp_path):
    project = copy(tmp_path)
    (tmp_path / "own.py").write_text(FAILS)

    def change(config):
        entry = {"import": "own:Net", "batch_size": 4, "epochs": 3}
        config["models"]["own"] = entry | {"optimizer": {"name": "sgd", "lr": 0.1}}
        config["studies"]["first"].update(models=["own"], strategies=["serial"])

    project.configure(change)
    said = status(project).splitlines()
    assert said[0] == f"nothing has been run yet: there is no {project.results}"
    assert said[1].startswith("0 done, 0 running, 0 failed, 2 to go")
    project.call(expect=1)
    said = status(project)
    assert said.startswith("0 done, 0 running, 2 failed, 0 to go")
    assert "snakemake is not running" in said
    assert said.count("RuntimeError: the third step is too much") == 2
    again = re.findall(r"rerun: (.+)", said)
    assert len(again) == 2
    (tmp_path / "mended").touch()
    command = shlex.split(again[0])  # as pasted in a shell, whatever its PATH
    subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, check=True, capture_output=True)
    assert status(project).startswith("1 done, 0 running, 0 failed, 1 to go"), "of the last call"


def test_why_a_run_would_run_again(tmp_path):
    assert status(copy(tmp_path / "new"), "--why").count("has not been trained") == 1
    project = miniature().copied(tmp_path / "copy")
    project.configure(lambda config: config["studies"]["first"].update(models=["mlp"]))
    assert "all runs are up to date with the config" in status(project, "--why")
    weights = next((project.results / "runs" / "tiny" / "mlp").rglob("weights.pt"))
    weights.rename(project.folder / "weights.pt")
    assert "weights.pt is gone, or is not what this version writes" in status(project, "--why")
    (project.folder / "weights.pt").rename(weights)
    ddp = "scripts/allcores/strategies/ddp.py"
    project.edit(ddp, "def _arrange_buckets(self) ->", "def _arrange_buckets(self, on=0) ->")
    why = status(project, "--why")
    assert "ddp/w2t1/fold0of2/nall_seed0 and 1 more:" in why
    assert "code: allcores has changed, or a file of yours that the run uses\n" in why
    assert "serial" not in why
    project.edit("mine.yaml", "lr: 0.05", "lr: 0.06")
    assert "optimizer.lr: 0.05 -> 0.06" in status(project, "--why")
    assert project.trains() == RUNS / 2


def test_a_run_that_is_going_on_is_seen_from_outside_whatever_its_log_says(tmp_path):
    project = copy(tmp_path)
    project.edit(
        "scripts/allcores_study/training/progress.py", 'f"epoch {done}/', 'f"Epoche {done} von '
    )
    project.configure(lambda config: config["studies"]["first"].update(models=["mlp"]))
    project.configure(lambda config: config["models"]["mlp"].update(epochs=100_000))
    process = project.snakemake()
    wait_for(lambda: list(project.results.rglob("latest.allcores")))
    wait_for(lambda: re.search(r"epoch \d+ of 100000, loss 0\.\d+", status(project)))
    said = status(project)
    assert re.match(r"0 done, [12] running, 0 failed, [23] to go; [0-9:]+ left", said)
    assert "not running" not in said
    logs = [log.read_text() for log in (project.results / "logs" / "train").rglob("*.log")]
    assert any("Epoche " in log for log in logs)
    process.kill()
    process.communicate()
    wait_for(lambda: "snakemake is not running" in status(project))


@pytest.mark.parametrize("pace", [1.0, 2.0, 0.5])
def test_the_time_left_follows_what_has_been_seen(pace, monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    runs = {run.path: run for run in (vary(epochs=10, seed=seed) for seed in range(8))}
    table = Table(runs, {"one": list(runs)}, dict.fromkeys(runs, Conditions()))
    # Two of 10 s each at a time; two are done, two are half done.
    paths, began = list(runs), now - 15 * pace
    of_runs = dict.fromkeys(paths, RunProgress(WAITING))
    of_runs |= dict.fromkeys(paths[:2], RunProgress(DONE))
    of_runs |= dict.fromkeys(paths[2:4], RunProgress(RUNNING, now - 5, epochs=5, loss=0.1))
    call = journal.CallRecord.of_this_process(2, dict.fromkeys(runs, 10.0))
    jobs = [job("train", path, journal.RUNNING, began) for path in paths[2:4]]
    look = state.CallSnapshot(table, call, jobs, of_runs)
    assert seconds_left(look) == pytest.approx(25 * pace, rel=0.2)
    shown = [look.line(), *look.lines_of_jobs()]
    assert re.match(r"2 done, 2 running, 0 failed, 4 to go; [0-9:]+ left$", shown[0])
    assert shown[1] == f"  epoch 5 of 10, loss 0.1, 5.0 s: {paths[2]}"
    done = dict.fromkeys(paths, RunProgress(DONE))
    assert not dataclasses.replace(look, runs=done).line().endswith("left")


def seconds_left(look):
    minutes, seconds = look.line().rpartition("; ")[2].removesuffix(" left").split(":")
    return 60 * int(minutes) + int(seconds)


def job(rule, title, of_state, began=None):
    runs, now = [title] if rule == "train" else [], time.time()
    began = now - 5 if began is None else began
    return journal.JobRecord(rule, title, of_state, began, now, 1, "", runs=runs)


def seen(jobs, *, call=None, done=(), is_over=False):
    """The state.CallSnapshot at a call in which the runs at some paths are done."""
    table = grid.expand(yaml.safe_load(STUDIES))
    call = call or journal.CallRecord.of_this_process(2, {})
    runs = state.states(table.runs, jobs, lambda path: path in done, is_over)
    return state.CallSnapshot(table, call, jobs, runs, is_over)


def states_of(look):
    return {path: one.state for path, one in look.runs.items()}


def test_each_run_has_one_state_which_its_job_has_told():
    """A healthy run that is just ending is not a failed one; data that failed are told."""
    finished, running, failed, whole, *rest = grid.expand(yaml.safe_load(STUDIES)).runs
    jobs = [
        job("train", finished, journal.FINISHED),
        job("train", running, journal.RUNNING),
        job("train", failed, journal.FAILED),
        job("prepare_dataset", "digits", journal.FAILED),
        dataclasses.replace(job("report_three", "", journal.RUNNING), message="Make a report"),
    ]
    look = seen(jobs, done=(finished, whole))
    known = {finished: DONE, running: RUNNING, failed: FAILED, whole: DONE}
    assert states_of(look) == known | dict.fromkeys(rest, WAITING)
    shown = [look.line(), *look.lines_of_jobs()]
    assert shown[0].startswith("2 done, 1 running, 1 failed, ")
    assert shown[0].endswith("; prepare_dataset of digits failed")
    assert shown[2].startswith("  Make a report, 5.0 s")
    assert states_of(seen(jobs, done=(finished,), is_over=True))[running] == WAITING


def test_of_the_runs_of_a_job_each_has_told_its_own_state(tmp_path):
    """Where the job was killed, the run that it was at has failed, and the next have not begun."""
    runs = grid.expand(yaml.safe_load(STUDIES)).runs
    begun, trained, failed, stopped, *rest = runs
    noted = progress.ProgressFile()
    noted.start_file(tmp_path / "0.jsonl")
    now = time.time()
    for path in (trained, failed, stopped, begun):
        noted.begin(runs[path])
    noted.epoch(1, 0.5, is_last=True)
    noted.end(progress.TRAINED, trained)
    noted.end(progress.STOPPED, stopped)
    noted.end(progress.FAILED, failed, "Traceback\nRuntimeError: too much\n")
    with noted.file.open("a") as file:
        file.write(f'["{begun}", {{"stata": "begun"}}]\n')  # a damaged line
        file.write('["' + rest[0])  # one that is just being written
    paths = [begun, trained, failed, stopped, *rest]
    shared = journal.JobRecord(
        "train_several", "1 0", journal.RUNNING, now, now, 1, "", "", paths, str(noted.file)
    )
    known = {begun: RUNNING, trained: DONE, failed: FAILED, stopped: WAITING}
    look = seen([shared])
    assert states_of(look) == known | dict.fromkeys(rest, WAITING)
    assert look.lines_of_jobs()[0].startswith("  epoch 1 of 2, loss 0.5, 0")
    killed = dataclasses.replace(shared, state=journal.FAILED)
    assert states_of(seen([killed])) == states_of(look) | {begun: FAILED}
    assert f"    its run {failed}: RuntimeError: too much" in closing.failure(killed)
    assert states_of(seen([shared], is_over=True))[begun] == WAITING


@pytest.mark.parametrize("epochs", [1, 10])
def test_the_time_left_never_jumps(epochs, monkeypatch):
    """Ten runs of 60 s, two at a time, exactly as expected; an epoch says nothing until its end."""
    clock = [1000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    runs = {run.path: run for run in (vary(epochs=epochs, seed=seed) for seed in range(10))}
    table = Table(runs, {"one": list(runs)}, dict.fromkeys(runs, Conditions()))
    call = journal.CallRecord.of_this_process(2, dict.fromkeys(runs, 60.0))
    jobs = [job("train", next(iter(runs)), journal.RUNNING, 1000.0)]
    for second in range(1, 300, 7):
        clock[0] = 1000.0 + second
        turn, of_turn = divmod(second, 60)
        of_runs = {}
        for place, path in enumerate(runs):
            known = DONE if place // 2 < turn else RUNNING if place // 2 == turn else WAITING
            of_runs[path] = RunProgress(known, 1000.0 + 60 * turn, of_turn * epochs // 60)
        left = seconds_left(state.CallSnapshot(table, call, jobs, of_runs))
        assert left == pytest.approx(300 - second, rel=0.3, abs=8), second


def test_the_time_left_follows_from_what_this_call_has_done(monkeypatch):
    """Not from epochs of an earlier one; also of a run that keeps the other cores idle."""
    monkeypatch.setattr(time, "time", lambda: 1010.0)
    run = vary(epochs=100)
    for conditions, cores in ((Conditions(), 1), (Conditions(exclusive=True), 2)):
        table = Table({run.path: run}, {"one": [run.path]}, {run.path: conditions})
        call = journal.CallRecord.of_this_process(2, {run.path: 200.0 * cores})
        jobs = [job("train", run.path, journal.RUNNING, 1000.0)]
        going = RunProgress(RUNNING, 1000.0, epochs=55, resumed=50)
        shot = state.CallSnapshot(table, call, jobs, {run.path: going})
        assert seconds_left(shot) == pytest.approx(90, abs=1)
        going = RunProgress(RUNNING, 1000.0, epochs=0, most=10)  # of what was chosen
        shot = state.CallSnapshot(table, call, jobs, {run.path: going})
        assert seconds_left(shot) == pytest.approx(190, abs=1)
        assert "epoch 0 of 10," in shot.lines_of_jobs()[0]


def test_what_cannot_be_written_down_ends_no_call(tmp_path):
    """Only who watches needs it."""
    folder = ResultsFolder(str(tmp_path))
    call = journal.CallRecord.of_this_process(2, {})
    written = journal.Journal(folder, call)
    written.file = Path("/dev/full").open("w", buffering=1)
    written.note(0, job("train", "a", journal.RUNNING))
    assert written.jobs[0].title == "a"
    written.close()


STUDIES = """
models:
  lenet: &how {batch_size: 8, epochs: 2, optimizer: {name: adam, lr: 0.1}}
  mlp: *how
studies:
  three: {datasets: [digits], folds: 3, models: [lenet]}
  five: {datasets: [digits], folds: 5, models: [lenet, mlp]}
"""


def test_only_the_runs_that_a_call_trains_are_counted(tmp_path):
    folder, table = ResultsFolder(str(tmp_path)), grid.expand(yaml.safe_load(STUDIES))
    paths = [run.path for run in table.of("three")]
    call = journal.CallRecord.of_this_process(2, dict.fromkeys(paths, 60.0))
    progress = CallProgress(table, paths, journal.Journal(folder, call))
    assert progress().line().startswith("0 done, 0 running, 0 failed, 3 to go; 01:30 left")
    ended = job("train", paths[0], journal.FINISHED)
    progress.journal.note(0, ended)
    progress.notice(ended)
    assert progress().line().startswith("1 done, 0 running, 0 failed, 2 to go")
    progress.journal.close()


def test_jobs_that_wait_in_a_cluster_are_not_running(tmp_path):
    folder, table = ResultsFolder(str(tmp_path)), grid.expand(yaml.safe_load(STUDIES))
    paths = list(table.runs)
    of_call = journal.Journal(folder, journal.CallRecord.of_this_process(None, {}))
    for number, told in enumerate((journal.RUNNING, journal.QUEUED)):
        of_call.note(number, job("train", paths[number], told))
    line = CallProgress(table, paths, of_call)().line()
    assert line.startswith(f"0 done, 1 running, 0 failed, {len(paths) - 1} to go")
    of_call.close()


def test_nothing_of_a_killed_call_is_running_while_the_next_one_begins(tmp_path):
    folder, table = ResultsFolder(str(tmp_path)), grid.expand(yaml.safe_load(STUDIES))
    (path, *_) = table.runs
    killed = dataclasses.replace(journal.CallRecord.of_this_process(2, {path: 9.0}), pid=1)
    of_call = journal.Journal(folder, killed)
    of_call.note(0, job("train", path, journal.RUNNING))
    with journal.lock(folder):  # of this process
        seen = Status(Ledger({}, table, folder)).look()
        assert (seen.runs[path].state, seen.is_over) == (state.WAITING, False)
    of_call.close()


def test_while_a_job_is_started_again_what_it_has_trained_stays_trained(tmp_path):
    file, paths = tmp_path / "0.jsonl", {f"run{number}" for number in range(300)}
    seen_last, noted = [], progress.ProgressFile()
    noted.start_file(file, paths)

    def look():
        while not is_done.is_set():
            seen_last.append(progress.read(file).keys())

    is_done = threading.Event()
    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(20):
        progress.ProgressFile().start_file(file, paths)
    is_done.set()
    reader.join()
    assert seen_last and all(known == paths for known in seen_last)
