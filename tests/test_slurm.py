"""A miniature study on a real SLURM, brought up on this machine: make test-slurm."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, ROOT
from project import RUNS, copy

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def slurm():
    """The environment in which sbatch and squeue reach the cluster."""
    # Not pytest's own folder: munge wants every folder above its socket open to all.
    lab = Path(tempfile.mkdtemp(prefix="slurm-lab-"))
    lab.chmod(0o755)
    environment = ENVIRONMENT | {"LAB": str(lab)}
    up = subprocess.run(
        [ROOT / "tests" / "slurm" / "up.sh"], env=environment, text=True, capture_output=True
    )
    if up.returncode == 77:
        pytest.skip(up.stderr.strip().splitlines()[-1])
    try:
        assert up.returncode == 0, up.stderr
        yield environment | {"SLURM_CONF": f"{lab}/etc/slurm.conf"}
    finally:
        subprocess.run([ROOT / "tests" / "slurm" / "down.sh"], env=environment, check=True)
        shutil.rmtree(lab)


def test_the_study_runs_on_a_cluster_unchanged(slurm, tmp_path):
    project = copy(tmp_path)
    (tmp_path / "slurm").symlink_to("profiles/slurm")
    command = [sys.executable, "-m", "snakemake", "--profile", "slurm"]
    command += ["--configfile", project.config, "--jobs", "8"]
    # The machine is small and the jobs are short: ask for less, and look for their end sooner.
    command += ["--default-resources", "mem_mb=500", "runtime=5"]
    command += ["--set-resources", "train:mem_mb=900"]
    command += ["--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "5"]
    path = os.pathsep.join([str(Path(sys.executable).parent), slurm["PATH"]])
    run = subprocess.run(
        command, cwd=tmp_path, env=slurm | {"PATH": path}, text=True, capture_output=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert len(list((project.results / "runs").rglob("metrics.json"))) == RUNS
    assert (project.results / "studies" / "first" / "accuracy_table.csv").exists()
    states = subprocess.run(
        ["squeue", "--states=all", "-h", "-o", "%T %C"], env=slurm, text=True, capture_output=True
    ).stdout.splitlines()
    assert states.count("COMPLETED 2") == RUNS / 2, "ddp asked for two CPUs each"
    assert all(state.startswith("COMPLETED") for state in states)
