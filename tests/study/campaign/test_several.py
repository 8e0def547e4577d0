"""Short runs share a job, and lie in a store: each is trained once, whatever happens to others."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import patience
import pytest
import yaml
from conftest import ENVIRONMENT, ROOT
from project import copy

from allcores.files import read_json, write_json
from allcores.machine import costs, lifetime
from allcores_study.config import grid, schema, sweeps
from allcores_study.records import run_files
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.stacking import several
from allcores_study.stacking.several import SharedJob
from allcores_study.watching import journal

CONFIG = """
models:
  lenet: {width: 0.5, batch_size: 16, epochs: 2, optimizer: {name: adam, lr: 0.003}}
  mlp: {hidden: [16], batch_size: 16, epochs: 2, optimizer: {name: sgd, lr: 0.05}}
datasets:
  tiny: {name: synthetic, count: 60, test: 0, size: 8, classes: 3}
precision: fp32
memory_format: contiguous
runs_per_job: 3
studies:
  first: {datasets: [tiny], folds: 4, models: [lenet, mlp]}
"""
SELECTING = """
models:
  mlp: {hidden: [4], batch_size: 16, epochs: 1, optimizer: {name: adam, lr: [0.003, 0.05]}}
precision: fp32
memory_format: contiguous
studies:
  nested: {datasets: [wine], folds: 2, models: [mlp], select: 2}
"""
SLOW = """
import time

from torch import nn


class Net(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.LazyLinear(classes))
        self.steps = 0

    def forward(self, images):
        self.steps += 1
        if self.training and self.steps > 3 and FAILS:
            raise RuntimeError("out of order")
        time.sleep(SECONDS if self.training and self.steps > 3 else 0)
        return super().forward(images)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    project = copy(tmp_path_factory.mktemp("several"))
    project.config.write_text(CONFIG)
    project.output = project.call()
    return project


@pytest.fixture
def project(finished, tmp_path, monkeypatch):
    project = finished.copied(tmp_path / "moved")
    monkeypatch.chdir(project.folder)
    return project


def weights():
    """Path -> weights.pt of each run, wherever they lie."""
    found = run_files.below("results/mine")
    return {
        getattr(run, "path", str(run).partition("/runs/")[2]): run.read("weights.pt")
        for run in found
    }


def store():
    """Of the project where this process is."""
    return run_files.Store("results/mine/short_runs")


def table(project):
    config = sweeps.expanded(yaml.safe_load(project.config.read_text()))
    return grid.expand(schema.defaults() | config)


def test_runs_share_jobs_and_files(finished):
    assert re.search(r"^train_several +4$", finished.output, re.MULTILINE), "4 of each model"
    assert "8 runs trained, 0 of them diverged; 0 missing" in finished.output
    assert not list((finished.results / "runs").rglob("*.json"))
    files = sorted(file.name for file in (finished.results / "short_runs").iterdir())
    assert len(files) == 8
    lines = [
        pd.read_json(file, lines=True) for file in (finished.results / "short_runs").glob("*.jsonl")
    ]
    assert len(pd.concat(lines)["accuracy"]) == 8
    assert finished.planned() == {}


def test_how_many_share_a_job_trains_nothing_again_and_changes_no_bit(project):
    before = weights()
    project.configure(lambda config: config.update(runs_per_job=2))
    assert project.planned() == {}
    shutil.rmtree(project.results / "short_runs")
    shutil.rmtree(project.folder / ".snakemake")
    assert "8 runs trained" in project.call("--until", "train", "train_several")
    assert weights() == before
    # Alone, each in a job of its own.
    shutil.rmtree(project.results / "short_runs")
    project.configure(lambda config: config.update(runs_per_job=1))
    project.call("--until", "train", "train_several")
    assert store().runs == {}
    assert weights() == before


def damage(project, what):
    """Damage the store; returns how many runs that costs."""
    index = sorted((project.results / "short_runs").glob("*.jsonl"))[0]
    blobs, lines = index.with_suffix(".bin"), index.read_text().splitlines()
    content = bytearray(blobs.read_bytes())
    if what == "a bit of the files":
        first, count = json.loads(lines[0])["at"]["weights.pt"]
        content[first + count // 2] ^= 1
        blobs.write_bytes(content)
        return 1
    if what == "the files cut":
        blobs.write_bytes(content[: json.loads(lines[-1])["at"]["epochs.csv"][0]])
        return 1
    if what == "a bit of a line":
        index.write_text("\n".join([lines[0].replace("1", "2", 1), *lines[1:], ""]))
        return 1
    if what == "the last line cut":
        index.write_text("\n".join(lines)[:-9])
        return 1
    (index if what == "no lines" else blobs).unlink()
    return len(lines)


@pytest.mark.parametrize(
    "what",
    [
        *("a bit of the files", "the files cut", "a bit of a line", "the last line cut"),
        *("no lines", "no files"),
    ],
)
def test_what_is_damaged_is_trained_again_and_nothing_else(project, what):
    before = weights()
    lost = damage(project, what)
    planned = project.planned()
    assert (planned.get("train"), planned.get("train_several")) == ((1, None), (None, 1))[lost - 1]
    if what != "no files":
        return
    said = project.call()
    assert f"{lost} runs trained, 0 of them diverged; 0 missing" in said
    assert weights() == before
    assert project.planned() == {}


def test_damage_beside_a_line_that_was_lost_for_a_while_is_noticed(project):
    index = sorted((project.results / "short_runs").glob("*.jsonl"))[0]
    blobs, text = index.with_suffix(".bin"), index.read_text()
    first, count = json.loads(text.splitlines()[0])["at"]["weights.pt"]
    content = bytearray(blobs.read_bytes())
    content[first + count // 2] ^= 1
    blobs.write_bytes(content)
    index.write_text("".join(text.splitlines(keepends=True)[1:]))
    assert project.planned()["train"] == 1
    index.write_text(text)
    assert project.planned()["train"] == 1


def test_a_choice_is_made_of_the_scores_that_there_are(tmp_path, monkeypatch):
    """A change is interrupted after the inner runs; the choices of before seem to be newer."""
    project = copy(tmp_path)
    monkeypatch.chdir(tmp_path)
    project.config.write_text(SELECTING)
    project.call("--until", "select_candidate")
    files = sorted((project.results / "selections").rglob("*.json"))
    before = [file.read_bytes() for file in files]
    project.edit("mine.yaml", "epochs: 1", "epochs: 2")
    trained = len(weights())
    assert f"{trained} runs trained" in project.call("--until", "train", "train_several")
    assert [file.read_bytes() for file in files] == before
    for file in files:
        os.utime(file, (4e9, 4e9))
    project.call("--until", "select_candidate")
    folder = ResultsFolder("results/mine")
    folder.store.read_again()
    for selection in table(project).choices.values():
        said = read_json(folder.selection(selection.path))["candidates"]
        for label, paths in folder.scored_paths(selection).items():
            runs = [run_files.metrics(folder.run_files(path)) for path in paths]
            assert said[label]["scores"] == [run["accuracy"] for run in runs]


def test_a_call_is_the_last_whatever_the_clock_says(tmp_path):
    folder = ResultsFolder(str(tmp_path))
    (tmp_path / "short_runs").mkdir()
    (tmp_path / "short_runs" / "7fffffffffffffff_3.jsonl").touch()
    assert journal.new_call(folder) == "8000000000000000"


def test_a_setting_trains_the_runs_that_it_changes(project):
    project.configure(lambda config: config["models"]["mlp"].update(epochs=3))
    planned = project.planned()
    assert (planned.get("train"), planned["train_several"]) == (None, 2)


@pytest.mark.parametrize("flags", [("--forcerun", "train"), ("--forceall",)])
def test_what_is_forced_is_trained_again(project, flags):
    assert project.planned(*flags)["train_several"] == 4


@pytest.mark.parametrize("per_job", [3, 1])
def test_superseded_runs_do_not_come_back_when_the_newer_ones_are_deleted(project, per_job):
    """predict.py would use them: it knows no config."""
    old = store().files
    before = weights()
    project.configure(lambda config: config["models"]["mlp"].update(epochs=3))
    project.configure(lambda config: config.update(runs_per_job=per_job))
    project.call("--until", "train", "train_several")
    assert weights().keys() == before.keys()
    for file in {*store().files} - {*old}:
        file.unlink()
    shutil.rmtree(project.results / "runs", ignore_errors=True)
    assert weights() == {path: value for path, value in before.items() if "/lenet/" in path}


def with_slow_model(folder, models, epochs, **changes):
    """A project whose runs all share a job, those of a slow model the last."""
    project = copy(folder)
    text = SLOW
    for name, value in changes.items():
        text = text.replace(name, str(value))
    (folder / "slow.py").write_text(text)
    entry = {"import": "slow:Net", "batch_size": 16, "epochs": epochs}
    entry |= {"optimizer": {"name": "sgd", "lr": 0.1}}
    config = yaml.safe_load(CONFIG.replace("runs_per_job: 3", "runs_per_job: 12"))
    config["models"]["slow"] = entry
    config["studies"]["first"]["models"] = [*models, "slow"]
    project.config.write_text(yaml.safe_dump(config, sort_keys=False))
    return project


def status(project, *flags):
    command = [sys.executable, ROOT / "scripts" / "status.py", "--configfile", project.config]
    run = subprocess.run(
        [*command, *flags], cwd=project.folder, env=ENVIRONMENT, text=True, capture_output=True
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_one_that_fails_takes_no_other_with_it(tmp_path):
    project = with_slow_model(tmp_path, ["mlp"], epochs=2, FAILS=True, SECONDS=0)
    said = project.call(expect=1)
    assert "4 runs trained, 0 of them diverged; 4 missing" in said
    assert said.count("its run tiny/slow/") >= 4
    assert "out of order" in said
    assert "Report of first: results/mine/studies/first/report.html" in said
    told = status(project)
    assert told.startswith("4 done, 0 running, 4 failed, 0 to go"), told
    assert told.count("rerun: ") == 4
    project.edit("slow.py", "True", "False")
    assert "4 runs trained, 0 of them diverged; 0 missing" in project.call(
        "--until", "train", "train_several"
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_that_is_ended_keeps_what_it_has_trained(tmp_path, how, monkeypatch):
    project = with_slow_model(tmp_path, [], epochs=10, FAILS=False, SECONDS=0.04)
    monkeypatch.chdir(tmp_path)
    with project.snakemake() as call:

        def trained():
            logs = project.results.glob("calls/*/*.log")
            return sum(log.read_text().count("\ntrained: ") for log in logs)

        patience.wait_for(lambda: trained() >= 2)
        call.send_signal(how)
        call.communicate()
    kept = len(store().runs)
    assert 2 <= kept <= 4
    if how == signal.SIGTERM:
        return
    time.sleep(0.1)
    project.call("--unlock")
    assert f"{4 - kept} runs trained" in project.call("--until", "train", "train_several")


def test_a_store_that_was_cut_in_a_line_goes_on_with_a_new_one(tmp_path):
    """As where a machine was switched off."""
    ours = run_files.Store(tmp_path / "store")
    names = "made_of", "files", "loaded"
    for number in range(2):
        folder = tmp_path / "run"
        folder.mkdir()
        content = {"conditions": {}, "recipe": {}, "machine": {"processor": ""}, "loss": 1.0}
        run_files.Record("a", {}, {}, content).write(folder / "metrics.json")
        ours.add("1_0", f"path{number}", folder, lambda record: record)
        index = tmp_path / "store" / "1_0.jsonl"
        if number == 0:
            index.write_text(index.read_text()[:-20])
    ours.read_again()
    assert list(ours.runs) == ["path1"]
    assert all(hasattr(ours.runs["path1"].record, name) for name in names)


def test_what_the_config_asks_for_no_more_is_listed_and_removed(project):
    assert status(project, "--unused") == "nothing is unused\n"
    project.configure(lambda config: config["studies"]["first"].update(models=["mlp"]))
    said = status(project, "--unused")
    assert "results/mine/short_runs: 4 of 8 files" in said
    assert "; --remove-unused deletes them" in said
    before = weights()
    assert "MB removed" in status(project, "--remove-unused")
    assert weights() == {path: value for path, value in before.items() if "/mlp/" in path}
    assert "nothing is unused" in status(project, "--remove-unused")
    assert project.planned() == {"report_first": 1, "all": 1, "total": 2}


def test_all_are_trained_alone_where_the_process_that_stacks_ends_at_once(tmp_path):
    file = tmp_path / "calls" / "first" / "0.json"
    file.parent.mkdir(parents=True)
    write_json(file, {"results": str(tmp_path), "runs": {"one": [], "two": []}})
    job = SharedJob(file)
    alone = job._stacked(lambda job, tell: os._exit(1), program=lambda function: function())
    assert alone == {"one", "two"}


def test_what_a_run_of_a_shared_job_costs_is_counted_from_its_own_beginning(tmp_path, monkeypatch):
    """A process that was called long ago stands for the program of the job."""
    monkeypatch.setenv(lifetime.CLIENT, str(os.getppid()))
    file = tmp_path / "costs"

    def run():
        watch = costs.Watch(os.devnull)
        file.write_text(f"{time.time() - watch.sessions[-1].started} {costs.cpu_seconds()}")
        return 0

    assert costs.program_start("self") < time.time() - 1
    assert several._in_child(run) == (0, None)
    lasted, cpu = map(float, file.read_text().split())
    assert lasted < 1 and cpu < 1


def test_a_run_that_ends_as_its_job_is_told_to_stop_has_ended():
    read, write = os.pipe()

    def run():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as one does that writes its results
        os.write(write, b".")
        return 0

    def told_to_stop():
        os.read(read, 1)
        raise KeyboardInterrupt("SIGINT")

    status, stop = several._in_child(run, told_to_stop)
    assert status == 0 and str(stop) == "SIGINT"
