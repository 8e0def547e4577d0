"""Clusters as sites have them: ways of asking, calls side by side, drained nodes, short turns, two
hardware threads to a core, jobs that are forgotten or suspended, little memory, no answer."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT
from patience import wait_for
from slurm_lab import (
    SMALL,
    Allocation,
    by_profile,
    checkpoints_of,
    ended,
    logs_of,
    reached,
    says,
    slow_model,
    small,
    weights_of,
)

pytestmark = pytest.mark.slurm
slurm = reached(NODES="6")
OF_TWO_THREADS = pytest.mark.parametrize("slurm", [{"THREADS": "2", "NODES": "2"}], indirect=True)
FORGETFUL = pytest.mark.parametrize("slurm", [{"MIN_JOB_AGE": "2"}], indirect=True)

WAYS = {
    "tasks": ["--nodes=1", "--ntasks=2"],
    "tasks and cpus": ["--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=2"],
    "hint": ["--nodes=1", "--exclusive", "--hint=nomultithread"],
    "memory": ["--nodes=1", "--exclusive", "--mem=3000"],
    "memory per cpu": ["--nodes=1", "--exclusive", "--mem-per-cpu=1500"],
}


def test_however_an_allocation_is_asked_for_it_works_with_what_it_got(slurm, tmp_path):
    allocations = {}
    for name, asked in WAYS.items():
        folder = tmp_path / name.replace(" ", "_")
        # More than the lab gives to a CPU if nobody asks.
        asked = asked if "memory" in name else ["--mem=3000", *asked]
        allocations[name] = Allocation(slurm, folder, asked=asked, **SMALL)
    for name, allocation in allocations.items():
        allocation.ends_well()
        logs = "".join(allocation.logs())
        assert "starting without" not in logs, name
        assert "another process" not in logs, name
        assert len(allocation.weights()) == 2, name
        assert "FAILED" not in allocation.log.read_text(), name


def test_a_turn_that_is_too_short_for_anything_is_the_last(slurm, tmp_path):
    model = slow_model(tmp_path, seconds=0.05, epochs=100)
    allocation = Allocation(slurm, tmp_path, model=model, **SMALL)
    wait_for(lambda: allocation.log.exists() and "Building DAG" in allocation.log.read_text())
    # As SLURM does two minutes before the end, which is at once where one minute was asked for.
    says(slurm, "scancel", "--batch", "--signal=USR1", allocation.job)
    assert allocation.ended(100) == "FAILED"
    assert "not queued again: no run made progress in this turn" in allocation.log.read_text()


def status(slurm, project):
    command = [sys.executable, ROOT / "scripts" / "status.py", "--configfile", project.config]
    return subprocess.run(
        list(map(str, command)), cwd=project.folder, env=slurm, text=True, capture_output=True
    ).stdout


def test_two_configs_side_by_side_leave_each_other_alone(slurm, tmp_path):
    project = small(tmp_path, slow_model(tmp_path, seconds=0.02, epochs=100))
    other = small(tmp_path / "elsewhere")
    other.config = other.config.rename(tmp_path / "other.yaml")
    other.folder, other.results = tmp_path, tmp_path / "results" / "other"
    first = by_profile(slurm, project)
    wait_for(lambda: logs_of(project))
    assert re.search(r"^0 done, [12] running, 0 failed", status(slurm, project))
    ended(by_profile(slurm, other))
    ended(first)
    assert len(weights_of(project)) == len(weights_of(other)) == 2


def test_drained_nodes_are_waited_for_and_ctrl_c_cancels_the_jobs(slurm, tmp_path):
    project = small(tmp_path)
    nodes = f"nodename=n[1-{len(says(slurm, 'sinfo', '-hN', '-pmain').splitlines())}]"
    says(slurm, "scontrol", "update", nodes, "state=drain", "reason=test")
    try:
        call = by_profile(slurm, project)
        wait_for(lambda: "PENDING" in says(slurm, "squeue", "-h", "-o", "%T"), 60)
        wait_for(lambda: status(slurm, project).startswith("0 done, 0 running, 0 failed, 2 to go"))
        time.sleep(30)  # the first look at jobs comes after 10
        call.send_signal(signal.SIGINT)
        said = ended(call, 60, returns=1)
        assert not says(slurm, "squeue", "-h").strip()
        assert re.search("Jobs pending in SLURM: .* for .*DRAINED", said)
        assert "SLURM account" not in said
    finally:
        says(slurm, "scontrol", "update", nodes, "state=resume")


# The first submission looks as if it had failed.
SBATCH = """#!/bin/sh
mkdir "$0.called" 2>/dev/null || exec SBATCH "$@"
SBATCH "$@" >/dev/null
echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
exit 1
"""


def test_a_job_that_slurm_has_although_sbatch_failed_is_watched(slurm, tmp_path):
    project = small(tmp_path / "project", slow_model(tmp_path / "project", seconds=0.05, epochs=40))
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(SBATCH.replace("SBATCH", shutil.which("sbatch")))
    sbatch.chmod(0o755)
    said = ended(by_profile(slurm | {"PATH": f"{tmp_path}:{slurm['PATH']}"}, project))
    assert "they wait: Batch job submission failed: Socket timed out on send/recv" in said
    assert "2 runs trained, 0 of them diverged; 0 missing" in said
    assert len(re.findall("SLURM jobid", said)) <= 1, "that of the other run"
    jobs = says(slurm, "squeue", "--states=all", "-h", "-o", "%Z").splitlines()
    assert jobs.count(str(project.folder)) == 2


def test_sigterm_cancels_what_is_pending_and_waits_for_what_runs(slurm, tmp_path):
    project = small(tmp_path, slow_model(tmp_path, seconds=0.05, epochs=40))
    call = by_profile(slurm, project)
    wait_for(lambda: len(checkpoints_of(project)) == 2, 60)
    number, *_ = says(slurm, "squeue", "-h", "-t", "RUNNING", "-o", "%i").split()
    says(slurm, "scontrol", "requeuehold", number)
    wait_for(lambda: "PENDING" in says(slurm, "squeue", "-h", "-o", "%T"), 60)
    call.send_signal(signal.SIGTERM)
    said = ended(call, 120, returns=1)
    assert "Stopping: waiting for running jobs, starting no others; Ctrl-C cancels them" in said
    assert "1 runs trained, 0 of them diverged; 1 missing" in said
    assert not says(slurm, "squeue", "-h").strip()


def test_an_allocation_of_two_nodes_is_refused_with_what_to_use(slurm, tmp_path):
    allocation = Allocation(slurm, tmp_path, asked=["--nodes=2", "--exclusive"], **SMALL)
    assert allocation.ended(100) == "FAILED"
    assert "expected --nodes 1; for more, use --profile slurm" in allocation.log.read_text()


@pytest.mark.parametrize("asked", [["--exclusive"], ["--exclusive", "--hint=nomultithread"]])
@OF_TWO_THREADS
def test_each_core_has_one_worker(slurm, tmp_path, asked):
    asked = ["--nodes=1", "--mem=6000", *asked]
    allocation = Allocation(slurm, tmp_path, asked=asked, seeds=[0, 1], **SMALL)
    allocation.ends_well()
    assert len(allocation.weights()) == 4
    assert "Provided cores: 2" in allocation.log.read_text()


@FORGETFUL
def test_jobs_that_are_forgotten_and_an_outage_lose_no_run(slurm, tmp_path):
    """While SLURM does not answer jobs end, and are submitted; it forgets them after 2 s."""
    project = small(tmp_path, slow_model(tmp_path, seconds=0.02, epochs=20), folds=3)
    call = by_profile(slurm, project, "--jobs", "2")
    wait_for(lambda: logs_of(project))
    pid = int(Path(slurm["LAB"], "run", "slurmctld.pid").read_text())
    os.kill(pid, signal.SIGTERM)
    time.sleep(15)
    subprocess.run(["slurmctld"], env=slurm, check=True)
    said = ended(call)
    assert "SLURM does not answer; asking again" in said
    assert len(weights_of(project)) == 3
    assert not list((project.results / "logs" / "slurm").rglob("*")), "no empty folder is left"


@FORGETFUL
def test_a_run_over_two_nodes_that_is_suspended_goes_on(slurm, tmp_path):
    wide = {"strategies": ["shared_memory"], "nodes": 2, "workers": [1]}
    project = small(tmp_path, slow_model(tmp_path, seconds=0.05, epochs=40), **wide)
    call = by_profile(slurm, project)
    wait_for(lambda: any("epoch 1/" in log for log in logs_of(project)))
    running = says(slurm, "squeue", "-h", "-t", "RUNNING", "-o", "%i").split()
    for command in ("suspend", "resume"):
        for number in running:
            says(slurm, "scontrol", command, number)
        time.sleep(12 if command == "suspend" else 0)
    ended(call)
    assert len(weights_of(project)) == 2
    assert not any("has been silent for" in log for log in logs_of(project))
