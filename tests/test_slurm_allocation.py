"""Many runs in one job of SLURM: profiles/allocation.sh."""

import json
import re
import time

import pytest
from patience import wait_for
from project import RUNS
from slurm_lab import (
    Allocation,
    checkpoints_of,
    cluster,
    kill_node,
    says,
    slow_model,
)

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def slurm():
    """The environment in which sbatch and squeue reach the cluster."""
    with cluster() as environment:
        yield environment


OVER_NODES = ("shared_memory", "ddp", "ring", "parameter_server")


def test_many_runs_share_one_allocation(slurm, tmp_path):
    allocation = Allocation(slurm, tmp_path / "there", wide=OVER_NODES, seeds=[0, 1])
    allocation.ends_well()
    assert len(allocation.weights()) == 2 * (RUNS + 2 * len(OVER_NODES))
    # One job: neither runs nor tables are submitted.
    assert len(says(slurm, "squeue", "--states=all", "-h", "-n", "allcores").splitlines()) == 1
    assert (allocation.project.results / "studies" / "first" / "report.html").exists()
    assert not any("starting without" in log for log in allocation.logs())
    hosts = {
        tuple(node["host"] for node in json.loads(file.read_text())["nodes"])
        for file in (allocation.project.results / "runs").rglob("metrics.json")
    }
    first, last = allocation.nodes()
    assert hosts == {(first,), (last,), (first, last)}
    assert allocation.is_like_a_local_call(tmp_path / "here")


@pytest.mark.parametrize(("nodes", "why"), [(1, "time limit"), (2, "preemption")])
def test_runs_stop_in_mid_epoch_and_go_on_in_the_next_turn(slurm, tmp_path, nodes, why):
    folder = tmp_path / "there"
    # A step takes longer than a program that is not given time would live.
    model = slow_model(folder, seconds=1.5, epochs=1)
    slow_model(tmp_path / "here", seconds=0, epochs=1)
    wide = ["shared_memory"] if nodes > 1 else []
    allocation = Allocation(
        slurm, folder, nodes, wide, model, models=["mlp"], strategies=["serial"]
    )
    checkpoints = allocation.project.results / "checkpoints"
    wait_for(lambda: len(list(checkpoints.rglob("trace.allcores"))) >= nodes)
    time.sleep(3)
    begun = len(list(checkpoints.rglob("trace.allcores")))
    if why == "preemption":
        urgent = ["--partition=urgent", "--nodes=3", "--exclusive", "--wrap=sleep 1"]
        says(slurm, "sbatch", "--output=/dev/null", *urgent)
    else:  # as SLURM does two minutes before the end
        says(slurm, "scancel", "--batch", "--signal=USR1", allocation.job)
    wait_for(lambda: allocation.state() == "PENDING", 60)
    saved = {file.parent for file in checkpoints.rglob("latest.allcores")}
    assert len(saved) == begun, allocation.logs()
    allocation.ends_well()
    resumed = re.compile(r"resumed after epoch 0 of 1 and \d+ of 8 steps")
    assert sum(bool(resumed.search(log)) for log in allocation.logs()) == begun
    assert not any("starting without" in log for log in allocation.logs())
    assert allocation.is_like_a_local_call(tmp_path / "here")


def test_a_node_that_dies_loses_its_runs_only(slurm, tmp_path):
    model = slow_model(tmp_path / "there", seconds=0.02, epochs=100)
    slow_model(tmp_path / "here", seconds=0, epochs=100)
    allocation = Allocation(slurm, tmp_path / "there", model=model, models=["mlp"])
    wait_for(lambda: checkpoints_of(allocation.project))
    _, last = allocation.nodes()  # the job itself runs on the first
    kill_node(slurm, last)  # the last test: it stays dead
    allocation.ends_well()
    assert allocation.is_like_a_local_call(tmp_path / "here")
