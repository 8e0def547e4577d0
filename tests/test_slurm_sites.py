"""A cluster as sites have it: ways of asking, calls side by side, drained nodes, short turns."""

import re
import signal
import subprocess
import sys

import patience
import pytest
from conftest import ROOT
from patience import wait_for
from project import copy
from slurm_lab import Allocation, by_profile, cluster, logs_of, says, slow_model, weights_of

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def slurm():
    with cluster(NODES="6") as environment:
        yield environment


WAYS = {
    "tasks": ["--nodes=2", "--ntasks=4"],
    "tasks per node": ["--nodes=2", "--ntasks-per-node=2"],
    "tasks per node and cpus": ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2"],
    "cpus": ["--nodes=2", "--cpus-per-task=2"],
    "hint": ["--nodes=2", "--exclusive", "--hint=nomultithread"],
    "memory": ["--nodes=2", "--exclusive", "--mem=3000"],
    "memory per cpu": ["--nodes=2", "--exclusive", "--mem-per-cpu=1500"],
    "tasks on one node": ["--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1"],
}
SMALL = {"models": ["mlp"], "strategies": ["serial"]}


def test_however_an_allocation_is_asked_for_it_works_with_what_it_got(slurm, tmp_path):
    allocations = {}
    for name, asked in WAYS.items():
        wide = ["shared_memory"] if "--nodes=2" in asked else []
        folder = tmp_path / name.replace(" ", "_")
        # More than the lab gives to a CPU if nobody asks.
        asked = asked if "memory" in name else ["--mem=3000", *asked]
        allocations[name] = Allocation(slurm, folder, wide=wide, asked=asked, **SMALL)
    for name, allocation in allocations.items():
        allocation.ends_well()
        logs = "".join(allocation.logs())
        assert "starting without" not in logs, name
        assert "another process" not in logs, name
        assert len(allocation.weights()) == (2 if name.endswith("one node") else 4), name
        assert "FAILED" not in allocation.log.read_text(), name


def test_a_turn_that_is_too_short_for_anything_is_the_last(slurm, tmp_path):
    model = slow_model(tmp_path, seconds=0.05, epochs=100)
    allocation = Allocation(slurm, tmp_path, nodes=1, model=model, **SMALL)
    wait_for(lambda: allocation.log.exists() and "Building DAG" in allocation.log.read_text())
    # As SLURM does two minutes before the end, which is at once where one minute was asked for.
    says(slurm, "scancel", "--batch", "--signal=USR1", allocation.job)
    wait_for(lambda: allocation.state() not in ("PENDING", "RUNNING", "COMPLETING"), 100)
    assert allocation.state() == "FAILED"
    assert "not queued again: no run came any further in this turn" in allocation.log.read_text()


def status(slurm, project):
    command = [sys.executable, ROOT / "scripts" / "status.py", "--configfile", project.config]
    return subprocess.run(
        list(map(str, command)), cwd=project.folder, env=slurm, text=True, capture_output=True
    ).stdout


def test_two_configs_side_by_side_leave_each_other_alone(slurm, tmp_path):
    project = copy(tmp_path)
    project.configure(lambda config: config["studies"]["first"].update(SMALL))
    slow = slow_model(tmp_path, seconds=0.02, epochs=100)
    project.configure(lambda config: config["models"].update(mlp=slow))
    other = copy(tmp_path / "elsewhere")
    other.configure(lambda config: config["studies"]["first"].update(SMALL))
    other.config = other.config.rename(tmp_path / "other.yaml")
    other.folder, other.results = tmp_path, tmp_path / "results" / "other"
    first = by_profile(slurm, project)
    wait_for(lambda: logs_of(project))
    assert re.search(r"^0 done, [12] running, 0 failed", status(slurm, project))
    second = by_profile(slurm, other)
    said, _ = second.communicate(timeout=patience.seconds(200))
    assert second.returncode == 0, said
    said, _ = first.communicate(timeout=patience.seconds(200))
    assert first.returncode == 0, said
    assert len(weights_of(project)) == len(weights_of(other)) == 2


def test_drained_nodes_are_waited_for_and_ctrl_c_cancels_the_jobs(slurm, tmp_path):
    project = copy(tmp_path)
    project.configure(lambda config: config["studies"]["first"].update(SMALL))
    nodes = f"nodename=n[1-{len(says(slurm, 'sinfo', '-hN', '-pmain').splitlines())}]"
    says(slurm, "scontrol", "update", nodes, "state=drain", "reason=test")
    try:
        call = by_profile(slurm, project)
        wait_for(lambda: "PENDING" in says(slurm, "squeue", "-h", "-o", "%T"), 60)
        wait_for(lambda: status(slurm, project).startswith("0 done, 0 running, 0 failed, 2 to go"))
        call.send_signal(signal.SIGINT)
        said, _ = call.communicate(timeout=patience.seconds(60))
        assert call.returncode == 1, said
        assert not says(slurm, "squeue", "-h").strip()
    finally:
        says(slurm, "scontrol", "update", nodes, "state=resume")


def test_how_many_threads_are_fastest_is_known_before_jobs_ask_for_cpus(slurm, tmp_path):
    project = copy(tmp_path)
    wider = SMALL | {"strategies": ["serial", "ddp"], "threads_per_worker": ["auto"]}

    def change(config):
        config["studies"]["first"].update(wider)
        config["recipe"] = "auto"

    project.configure(change)
    call = by_profile(slurm, project)
    said, _ = call.communicate(timeout=patience.seconds(230))
    assert call.returncode == 0, said
    assert "FAILED" not in said
