"""A job of SLURM for each run: snakemake --profile slurm."""

import re

import pytest
from patience import wait_for
from project import RUNS, copy
from slurm_lab import (
    by_profile,
    checkpoints_of,
    cluster,
    ends_like_a_local_call,
    logs_of,
    says,
    slow_model,
)

from allcores.study import run_files

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def slurm():
    """The environment in which sbatch and squeue reach the cluster."""
    with cluster() as environment:
        yield environment


def test_the_study_runs_on_a_cluster_unchanged(slurm, tmp_path):
    project = copy(tmp_path)
    wide = {"datasets": ["tiny"], "folds": 2, "models": ["mlp"], "nodes": 2}
    wide["schedules"] = ["cosine"]  # serial is trained so, too
    project.configure(
        lambda config: config["studies"].update(wide=wide | {"strategies": ["shared_memory"]})
    )
    run = by_profile(slurm, project)
    said, _ = run.communicate()
    assert run.returncode == 0, said
    assert len(list((project.results / "runs").rglob("metrics.json"))) == RUNS + 2
    assert (project.results / "studies" / "first" / "accuracy_table.csv").exists()
    states = says(slurm, "squeue", "--states=all", "-h", "-o", "%T %C %D").splitlines()
    assert states.count("COMPLETED 2 1") == RUNS / 2, "ddp asked for two CPUs each"
    assert states.count("COMPLETED 2 2") == 2, "two nodes of one CPU"
    assert all(state.startswith("COMPLETED") for state in states)
    assert ends_like_a_local_call(project, tmp_path / "here")


def test_short_runs_share_jobs(slurm, tmp_path):
    project = copy(tmp_path / "there")
    project.configure(lambda config: config.pop("runs_per_job"))
    call = by_profile(slurm, project)
    said, _ = call.communicate()
    assert call.returncode == 0, said
    assert "8 runs trained, 0 of them diverged; 0 missing" in said
    assert len(run_files.below(project.results)) == 8
    logs = list(project.results.glob("calls/*/*.log"))
    assert len(logs) == 4, "of each model and strategy the two folds"
    assert not list((project.results / "logs" / "train").rglob("*.log"))


def test_jobs_of_a_call_that_was_killed_are_not_submitted_twice(slurm, tmp_path):
    """SIGKILL of snakemake, then scancel of a job in mid-run: it goes on where it was."""
    project = copy(tmp_path / "there")
    one = {"models": ["mlp"], "strategies": ["shared_memory"], "workers": [1]}
    project.configure(lambda config: config["studies"]["first"].update(one))
    slow = slow_model(project.folder, seconds=0.02, epochs=150)
    project.configure(lambda config: config["models"].update(mlp=slow))
    first = by_profile(slurm, project)
    wait_for(lambda: checkpoints_of(project))
    first.kill()
    first.communicate()
    by_profile(slurm, project, "--unlock").communicate()
    second = by_profile(slurm, project)
    said, _ = second.communicate()
    numbers = re.search(r"`scancel ([\d ]+)`", said)
    assert second.returncode == 1
    assert "SLURM still has jobs of an earlier call" in said
    says(slurm, "scancel", *numbers[1].split())
    wait_for(lambda: not says(slurm, "squeue", "-h").strip(), 60)
    third = by_profile(slurm, project)
    wait_for(lambda: any("resumed after epoch" in log for log in logs_of(project)))
    says(slurm, "scancel", *says(slurm, "squeue", "-h", "-o", "%i", "-t", "RUNNING").split())
    said, _ = third.communicate()
    assert third.returncode == 0, said
    assert any("resumed after epoch" in log for log in logs_of(project))
    slow_model(tmp_path / "here", seconds=0, epochs=150)
    assert ends_like_a_local_call(project, tmp_path / "here")


def test_what_would_wait_for_ever_is_told_before_anything_is_submitted(slurm, tmp_path):
    project = copy(tmp_path)
    for asked, message in (
        ("train:runtime=3000", "the partition main ends jobs after 1440 minutes"),
        ("train:mem_mb=90000", "Requested node configuration is not available"),
        ("train:slurm_partition=nix", "Invalid partition name specified"),
    ):
        run = by_profile(slurm, project, "--set-resources", asked)
        said, _ = run.communicate()
        assert run.returncode == 1
        assert "SLURM would never start these jobs:\ntrain, 1 CPUs" in said
        assert message in said
