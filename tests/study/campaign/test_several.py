"""Short runs share a job: each is trained once, whatever happens to others."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import patience
import pytest
import yaml
from conftest import ENVIRONMENT, ROOT, vary
from project import copy

import train
from allcores.files import read_json
from allcores.machine import costs, lifetime
from allcores_study.config import grid, settings, sweeps
from allcores_study.records import run_files
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.stacking import several
from allcores_study.training import progress

CONFIG = """
models:
  lenet: {width: 0.5, batch_size: 16, epochs: 2, optimizer: {name: adam, lr: 0.003}}
  mlp: {hidden: [16], batch_size: 16, epochs: 2, optimizer: {name: sgd, lr: 0.05}}
datasets:
  tiny: {name: fake, count: 60, test: 0, size: 8, classes: 3}
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


def weights(project):
    """Path -> weights.pt of each run."""
    found = run_files.below(project.results / "runs")
    return {
        str(run.relative_to(project.results)): (run / "weights.pt").read_bytes() for run in found
    }


def table(project):
    config = sweeps.expanded(yaml.safe_load(project.config.read_text()))
    return grid.expand(settings.with_defaults(config))


def test_runs_share_jobs_and_files(finished):
    assert re.search(r"^train_several +4$", finished.output, re.MULTILINE), "4 of each model"
    assert "8 runs trained, 0 of them diverged; 0 missing" in finished.output
    for run in run_files.below(finished.results / "runs"):
        assert {file.name for file in run.iterdir()} == set(run_files.RUN_FILES)
    assert finished.planned() == {}


def test_how_many_share_a_job_trains_nothing_again_and_changes_no_bit(project):
    before = weights(project)
    project.configure(lambda config: config.update(runs_per_job=2))
    assert project.planned() == {}
    shutil.rmtree(project.results / "runs")
    shutil.rmtree(project.folder / ".snakemake")
    assert "8 runs trained" in project.call("--until", "train", "train_several")
    assert weights(project) == before
    # Alone, each in a job of its own, which leaves a mark beside the files.
    shutil.rmtree(project.results / "runs")
    project.configure(lambda config: config.update(runs_per_job=1))
    project.call("--until", "train", "train_several")
    assert weights(project) == before
    for run in run_files.below(project.results / "runs"):
        others = {file.name for file in run.iterdir()} - set(run_files.RUN_FILES)
        assert len(others) == 1 and others.pop().startswith("made.")


@pytest.mark.parametrize("name", run_files.RUN_FILES)
@pytest.mark.parametrize("how", ["gone", "cut", "a bit"])
def test_what_is_damaged_is_trained_again_and_nothing_else(project, name, how):
    before = weights(project)
    file = run_files.below(project.results / "runs")[0] / name
    content = bytearray(file.read_bytes())
    if how == "gone":
        file.unlink()
    elif how == "cut":
        file.write_bytes(content[:-9])
    else:
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    planned = project.planned()
    assert (planned.get("train"), planned.get("train_several")) == (1, None)
    if name == "weights.pt":
        assert "1 runs trained" in project.call("--until", "train", "train_several")
        assert weights(project) == before
        assert set(project.planned()) == {"report_first", "all", "total"}


def test_a_choice_is_made_of_the_scores_that_there_are(tmp_path):
    """A change is interrupted after the inner runs; the chosen runs choose again."""
    project = copy(tmp_path)
    project.config.write_text(SELECTING)
    project.call()
    files = sorted((project.results / "selections").rglob("*.json"))
    assert files
    for file in files:
        os.utime(file, (4e9, 4e9))
    project.edit("mine.yaml", "epochs: 1", "epochs: 2")
    project.call()
    folder = ResultsFolder(str(project.results))
    for path, selection in table(project).selections.items():
        said = read_json(folder.selection(path))["candidates"]
        for label, inner in selection.inner.items():
            runs = [run_files.metrics(folder.run(one)) for one in inner]
            assert said[label]["scores"] == [run["accuracy"] for run in runs]


def test_a_setting_trains_the_runs_that_it_changes(project):
    project.configure(lambda config: config["models"]["mlp"].update(epochs=3))
    planned = project.planned()
    assert (planned.get("train"), planned["train_several"]) == (None, 2)


@pytest.mark.parametrize("flags", [("--forcerun", "train"), ("--forceall",)])
def test_what_is_forced_is_trained_again(project, flags):
    assert project.planned(*flags)["train_several"] == 4


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
def test_a_job_that_is_ended_keeps_what_it_has_trained(tmp_path, how):
    project = with_slow_model(tmp_path, [], epochs=10, FAILS=False, SECONDS=0.04)
    with project.snakemake() as call:
        patience.wait_for(lambda: len(weights(project)) >= 2)
        call.send_signal(how)
        call.communicate()
    kept = len(weights(project))
    assert 2 <= kept <= 4
    if how == signal.SIGTERM:
        return
    time.sleep(0.1)
    assert f"{4 - kept} runs trained" in project.call("--until", "train", "train_several")


def test_one_whose_process_is_killed_says_so(laboratory, tmp_path, monkeypatch, capfd):
    def killed(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(several, "_stack", killed)
    request, file = laboratory.request(vary(), "run"), tmp_path / "0.jsonl"
    monkeypatch.setattr(several.progress, "of_process", progress.ProgressFile())
    several.progress.of_process.start_file(file)
    path = request.run.path
    assert several.train([request], killed, lambda function, *given: function(*given)) == [path]
    how = "was killed by SIGKILL; the system does this when memory runs out"
    assert progress.read(file)[path].error == f"its process {how}"
    assert f"the process of several runs {how}" in capfd.readouterr().out


def test_all_are_trained_alone_where_the_process_that_stacks_ends_at_once(
    tmp_path, laboratory, monkeypatch
):
    monkeypatch.setattr(several, "_stack", lambda requests: os._exit(1))
    requests = [laboratory.request(vary(seed=seed), f"run{seed}") for seed in range(2)]
    alone = tmp_path / "alone"

    def train_one(request):
        with alone.open("a") as file:
            file.write(f"{request.run.seed} ")
        return 0

    assert several.train(requests, train_one, lambda function, *given: function(*given)) == []
    assert alone.read_text() == "0 1 "


def test_a_job_of_a_run_and_one_without_a_choice_has_failed(laboratory, tmp_path, monkeypatch):
    requests = [laboratory.request(vary(seed=seed), f"run{seed}") for seed in range(2)]

    def chosen(request, *_):
        if request.run.seed:
            raise ValueError("all candidates diverged")
        return request

    alone = []
    monkeypatch.setattr(train.run_request, "read", lambda file: (str(tmp_path), requests))
    monkeypatch.setattr(train, "chosen", chosen)
    monkeypatch.setattr(train, "is_trained", lambda *_: False)
    monkeypatch.setattr(several, "train", lambda requests, *_: alone.extend(requests) or [])
    monkeypatch.setattr(train.cores, "set_thread_variables", lambda count: None)
    monkeypatch.setattr(progress, "of_process", progress.ProgressFile())
    assert train.train(tmp_path / "0.json", 1) == 1
    assert alone == requests[:1]
    assert progress.read(tmp_path / "0.jsonl")[requests[1].run.path].state == progress.FAILED


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
        time.sleep(0.5)
        return 0

    def told_to_stop(*_):
        raise KeyboardInterrupt("SIGALRM")

    before = signal.signal(signal.SIGALRM, told_to_stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        status, stop = several._in_child(run)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert os.read(read, 1) == b"."
    assert status == 0 and str(stop) == "SIGALRM"
