"""What one can see of a call: how far it is, what failed, and why something would run again."""

import os
import re
import subprocess
import sys
import time

import pytest
from conftest import ENVIRONMENT, vary
from project import RUNS, copy
from test_strategies import wait_for

from allcores.campaign import state
from allcores.campaign.board import lines
from allcores.campaign.record import Record
from allcores.campaign.state import DONE, RUNNING, WAITING, RunState
from allcores.study.grid import Table

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
    command = [sys.executable, project.folder / "scripts" / "status.py", *arguments]
    command += ["--configfile", project.config]
    run = subprocess.run(
        list(map(str, command)), cwd=project.folder, env=ENVIRONMENT, text=True, capture_output=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_what_failed_is_told_with_its_reason_and_how_to_run_it_again(tmp_path):
    project = copy(tmp_path)
    (tmp_path / "own.py").write_text(FAILS)

    def change(config):
        own = {"import": "own:Net", "batch_size": 4, "epochs": 3}
        config["models"]["own"] = own | {"optimizer": {"name": "sgd", "lr": 0.1}}
        config["studies"]["first"].update(models=["own"], strategies=["serial"])

    project.configure(change)
    assert status(project).startswith("0 done, 0 running, 0 failed, 2 to go")
    project.call(expect=1)
    time.sleep(state.FRESH)
    said = status(project)
    assert said.startswith("0 done, 0 running, 2 failed, 0 to go")
    assert "no call of snakemake is going on here" in said
    assert said.count("RuntimeError: the third step is too much") == 2
    again = re.findall(r"again: (.+)", said)
    assert len(again) == 2
    (tmp_path / "mended").touch()
    program, *arguments = again[0].split()
    assert program == ".venv/bin/snakemake"
    command = [sys.executable, "-m", "snakemake", *arguments]
    subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, check=True, capture_output=True)
    assert status(project).startswith("1 done, 0 running, 1 failed, 0 to go")


def test_why_a_run_would_run_again(tmp_path):
    project = copy(tmp_path)
    project.configure(lambda config: config["studies"]["first"].update(models=["mlp"]))
    assert status(project, "--why").count("has not been trained") == 1
    project.call()
    assert "all runs are what the config asks for" in status(project, "--why")
    project.edit(
        "scripts/allcores/strategies/ddp.py", "def step(self, lr):", "def step(self, lr, on=0):"
    )
    why = status(project, "--why")
    assert "ddp/w2t1/fold0of2/nall_seed0 and 1 more:" in why
    assert "code: allcores/strategies/ddp.py (DDP)" in why
    assert "serial" not in why
    project.edit("mine.yaml", "lr: 0.05", "lr: 0.06")
    assert "optimizer.lr: 0.05 -> 0.06" in status(project, "--why")
    assert project.trains() == RUNS / 2


def test_a_run_that_is_going_on_is_seen_from_outside(tmp_path):
    project = copy(tmp_path)
    project.configure(lambda config: config["studies"]["first"].update(models=["mlp"]))
    project.configure(lambda config: config["models"]["mlp"].update(epochs=100_000))
    process = project.snakemake()
    wait_for(lambda: list(project.results.rglob("latest.allcores")))
    wait_for(lambda: re.search(r"epoch \d+ of 100000, loss 0\.\d+", status(project)))
    said = status(project)
    assert re.match(r"0 done, [12] running, 0 failed, [23] to go; 2 of 2 cores busy; about ", said)
    assert "no call" not in said
    process.kill()
    process.communicate()
    wait_for(lambda: "no call of snakemake is going on here" in status(project))


@pytest.mark.parametrize("pace", [1.0, 2.0, 0.5])
def test_the_time_left_follows_what_has_been_seen(pace):
    runs = {f"run {n}": vary(epochs=10) for n in range(8)}
    table = Table(runs, {"one": list(runs)}, frozenset(), frozenset(), frozenset())
    # Two of 10 s each at a time; two are done, two are half done.
    found = [RunState(path, WAITING) for path in runs]
    found[:2] = [RunState(path, DONE, 10) for path in list(runs)[:2]]
    found[2:4] = [RunState(path, RUNNING, 5, "0.1", 5.0) for path in list(runs)[2:4]]
    record = Record(
        time.time() - 15 * pace, "here", os.getpid(), 2, False, dict.fromkeys(runs, 10.0)
    )
    left = state.seconds_left(found, table, record, 2)
    assert left == pytest.approx(25 * pace, rel=0.2)
    told = list(lines(found, table, record, 2))
    assert told[0].startswith("2 done, 2 running, 0 failed, 4 to go; 2 of 2 cores busy; about ")
    assert told[1] == "  epoch 5 of 10, loss 0.1, 5.0 s: run 2"
    assert state.seconds_left(found[:2], table, record, 2) == 0.0
