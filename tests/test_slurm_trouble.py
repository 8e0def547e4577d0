"""A site may forget the jobs of a call, not answer, suspend a run, or give it little memory."""

import os
import signal
import subprocess
import time
from pathlib import Path

import patience
import pytest
from patience import wait_for
from project import copy
from slurm_lab import Allocation, by_profile, cluster, logs_of, says, slow_model, weights_of

pytestmark = pytest.mark.slurm
SMALL = {"models": ["mlp"], "strategies": ["serial"]}


@pytest.fixture(scope="module")
def slurm():
    with cluster(MIN_JOB_AGE="2") as environment:
        yield environment


def test_jobs_that_are_forgotten_and_an_outage_lose_no_run(slurm, tmp_path):
    """While SLURM does not answer jobs end, and are submitted; it forgets them after 2 s."""
    project = copy(tmp_path)
    project.configure(lambda config: config["studies"]["first"].update(SMALL | {"folds": 3}))
    slow = slow_model(tmp_path, seconds=0.02, epochs=20)
    project.configure(lambda config: config["models"].update(mlp=slow))
    call = by_profile(slurm, project, "--jobs", "2")
    wait_for(lambda: logs_of(project))
    pid = int(Path(slurm["LAB"], "run", "slurmctld.pid").read_text())
    os.kill(pid, signal.SIGTERM)
    time.sleep(15)
    subprocess.run(["slurmctld"], env=slurm, check=True)
    said = patience.ended(call, 200)
    assert call.returncode == 0, said
    assert "SLURM does not answer; it is asked again" in said
    assert len(weights_of(project)) == 3
    assert not list((project.results / "logs" / "slurm").rglob("*")), "no empty folder is left"


def test_a_run_over_two_nodes_that_is_suspended_goes_on(slurm, tmp_path):
    model = slow_model(tmp_path, seconds=0.05, epochs=40)
    allocation = Allocation(slurm, tmp_path, wide=["shared_memory"], model=model, **SMALL)
    wait_for(lambda: any("epoch 1/" in log for log in logs_of(allocation.project)))
    wait_for(lambda: list((allocation.project.results / "checkpoints").rglob("*_nodes2*")))
    says(slurm, "scontrol", "suspend", allocation.job)
    time.sleep(12)
    says(slurm, "scontrol", "resume", allocation.job)
    allocation.ends_well()
    assert len(weights_of(allocation.project)) == 4
    assert not any("was not heard of" in log for log in logs_of(allocation.project))


def test_runs_without_room_in_memory_are_refused_with_the_flag_that_mends_it(slurm, tmp_path):
    """As SLURM gives little memory to a CPU where nobody asks for more."""
    allocation = Allocation(slurm, tmp_path, asked=["--nodes=2", "--exclusive"], **SMALL)
    wait_for(lambda: allocation.state() not in ("PENDING", "RUNNING", "COMPLETING"), 100)
    said = allocation.log.read_text()
    assert "These runs have no room in memory:" in said
    assert "SLURM gives this job 200 MB on a node: submit it with --mem=0" in said
