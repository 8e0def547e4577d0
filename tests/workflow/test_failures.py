"""Runs and calls that go wrong: nothing is left running, nothing is lost, and it is said."""

import fcntl
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import patience
import pytest
from conftest import DDP, ENVIRONMENT, ROOT, train_program, using, vary
from patience import wait_for
from project import copy
from test_strategies import ENDLESS, alive, started

from allcores.parallel.reports import RankFailedError
from allcores_study.config.run import Entry
from allcores_study.training import experiment, progress

# Calls a program through a shell, as Snakemake does, and waits.
CALLER = """
import os, subprocess, sys
shell = f'exec "$@" --die-with-parent {os.getpid()}'
process = subprocess.Popen(["bash", "-c", shell, "bash", *sys.argv[1:]])
print(process.pid, flush=True)
process.wait()
"""


@pytest.mark.parametrize("delay", [0, 1.6])
def test_a_caller_that_is_killed_takes_its_training_along(laboratory, delay):
    """Also while that is still importing."""
    program = [*train_program(forked=False), *laboratory.arguments(ENDLESS)]
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, *program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENVIRONMENT,
        cwd=laboratory.folder,
    )
    training = int(caller.stdout.readline())
    time.sleep(delay)
    caller.kill()
    caller.wait()
    wait_for(lambda: not alive(training), 5)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGTERM, "stopped by SIGTERM; the same command resumes from the last checkpoint"),
        (signal.SIGINT, "the same command resumes from the last checkpoint"),
        (signal.SIGBUS, "Bus error"),
        (signal.SIGKILL, ""),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_signal_ends_all_ranks_and_leaves_a_word_in_the_log(laboratory, number, said):
    process, ranks = started(laboratory, vary(ENDLESS, strategy=DDP, workers=2))
    # As a terminal does: Ctrl-C is sent to the whole foreground group.
    for pid in [process.pid, *(ranks if number == signal.SIGINT else ())]:
        os.kill(pid, number)
    output = patience.ended(process, 60)
    assert process.returncode != 0
    assert said in output
    asked = number in (signal.SIGTERM, signal.SIGINT)
    assert not asked or (process.returncode == 1 and "Traceback" not in output)
    wait_for(lambda: not any(map(alive, ranks)), 0 if asked else 5)


def test_a_run_whose_output_nobody_reads_goes_on_and_stops_when_it_is_told_to(laboratory):
    """Its pipe is full after 40 lines; a rank that waits for a reader hears nothing."""
    process = laboratory.train(ENDLESS)
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)

    def epochs():
        known = progress.read(laboratory.folder / "jobs" / "run.jsonl")
        return max((run.epochs for run in known.values()), default=0)

    try:
        wait_for(lambda: epochs() > 60)
        signal_time = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=patience.seconds(20))
        assert patience.is_within(15, signal_time)
        assert (laboratory.checkpoints("run") / "latest.allcores").exists()
    finally:
        process.kill()
        process.stdout.close()


FORKING = """
import os, time
from pathlib import Path

import torch

class Net(torch.nn.Linear):
    def __init__(self, classes):
        super().__init__(192, classes)

    def forward(self, images):
        if self.training and not Path("child").exists():
            child = os.fork()
            if not child:
                os.setsid()
                time.sleep(1000)
            Path("child").write_text(str(child))
        return super().forward(images.flatten(1))
"""


@pytest.mark.parametrize("forked", [True, False])
@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_what_a_model_forks_ends_with_its_run(laboratory, how, forked):
    (laboratory.folder / "mine.py").write_text(FORKING)
    run, file = vary(model=Entry("mine", "mine:Net", {})), laboratory.folder / "child"
    if how == "ends":
        laboratory.finish(run, forked=forked)
    else:
        process = laboratory.train(vary(run, epochs=ENDLESS.epochs), forked=forked)
        wait_for(lambda: file.exists() and file.read_text())
        process.send_signal(signal.SIGTERM)
        patience.ended(process, 60)
    wait_for(lambda: not alive(int(file.read_text())), 5)


# In trainings, not in its smoke test, and at once: a run that had saved an epoch would resume.
FAILING = """
from pathlib import Path

from torch import nn

FAILS = True

class Net(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.LazyLinear(classes))

    def forward(self, images):
        if FAILS and Path("results/mine/checkpoints").exists():
            raise RuntimeError("out of order")
        return super().forward(images)
"""


def test_where_a_model_fails_the_others_get_their_tables(tmp_path):
    project = copy(tmp_path)
    (tmp_path / "mine.py").write_text(FAILING)

    def change(config):
        config["models"]["own"] = {"import": "mine:Net"} | config["models"]["mlp"]
        del config["models"]["own"]["hidden"], config["models"]["lenet"]
        config["studies"]["first"] |= {"models": ["mlp", "own"], "strategies": ["serial"]}
        config["studies"]["second"] = config["studies"]["first"] | {"models": ["own"]}

    project.configure(change)
    output = project.call(expect=1)
    assert "out of order" in output
    study = project.results / "studies" / "first"
    table = pd.read_csv(study / "accuracy_table.csv")
    assert list(table["model"]) == ["mlp"]
    missing = pd.read_csv(study / "missing.csv")["run"]
    assert len(missing) == 2
    assert all("/own/" in run for run in missing)
    verdict = (study / "report.html").read_text()
    assert "INCOMPLETE: 2 runs of 4 failed and are missing here (2 of own), for instance" in verdict
    assert "the reason is in its log: results/mine/logs/train/tiny/own" in verdict
    assert "2 runs trained, 0 of them diverged; 2 missing" in output
    # At once, and in the end again.
    assert output.count("failed: train tiny/own/cosine/serial/w1t1/fold") == 4
    assert "Traceback" not in output, "that is in its log"
    assert "Run the same command again to continue with the missing runs." in output
    command = [sys.executable, ROOT / "scripts" / "status.py", "--configfile", project.config]
    status = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, text=True, capture_output=True)
    assert status.stdout.startswith("2 done, 0 running, 2 failed, 0 to go"), status.stderr
    assert f"Report of first: {study.relative_to(tmp_path)}/report.html" in output
    assert not (project.results / "studies" / "second").exists()
    again = project.call(expect=1)
    assert "Tables and figures" not in again, "they are there, and of the same runs"
    # What was missing is tried again, and then all is there.
    project.edit("mine.py", "FAILS = True", "FAILS = False")
    planned = project.planned("report_first")
    assert (planned["train"], planned["report_first"]) == (2, 1)


def test_a_study_in_which_all_diverge_says_so(tmp_path):
    project = copy(tmp_path)

    def change(config):
        del config["models"]["lenet"]
        config["models"]["mlp"]["optimizer"]["lr"] = 1e30
        config["studies"]["first"] |= {"models": ["mlp"], "strategies": ["serial"]}

    project.configure(change)
    project.call()
    study = project.results / "studies" / "first"
    page = (study / "report.html").read_text()
    assert "DIVERGED (the loss became infinite or NaN)" in page
    table = pd.read_csv(study / "accuracy_table.csv")
    assert list(table["diverged"]) == [2]
    assert project.planned() == {}


HANGING = """
import time
import torch.distributed
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body, self.calls = nn.Linear(192, classes), 0

    def forward(self, x):
        self.calls += self.training
        if self.calls > 3 and torch.distributed.get_rank() == 1:
            time.sleep(1000)
        return self.body(x.flatten(1))
"""


@pytest.mark.parametrize("strategy", ["ddp", "shared_memory"])
def test_a_model_that_hangs_on_one_worker_is_named_there(
    laboratory, tmp_path, monkeypatch, strategy
):
    """The others wait for it in the exchange."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / f"hanging_{strategy}.py").write_text(HANGING)
    model = Entry("mine", f"hanging_{strategy}:Net", {})
    run = using(Entry(strategy, strategy, {}), 2, vary(model=model))
    request = laboratory.request(run, timeout=3.0)
    with pytest.raises(RankFailedError, match=r"worker 1 .* hangs, in the phase compute"):
        experiment.train_and_score(request)


THREADED = """
import threading, time
from torch import nn


def Net(classes):
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))
"""


def test_a_thread_that_a_model_leaves_does_not_keep_its_run(laboratory):
    (laboratory.folder / "threaded.py").write_text(THREADED)
    laboratory.finish(vary(model=Entry("mine", "threaded:Net", {})))
