"""The two ways of using SLURM, a job for each run and an allocation of many: each ends as a call on
one machine does."""

import json
import re
import time

import pytest
from patience import wait_for
from project import RUNS, copy
from slurm_lab import (
    Allocation,
    by_profile,
    checkpoints_of,
    ended,
    ends_like_a_local_call,
    logs_of,
    reached,
    says,
    slow_model,
    small,
)

from allcores_study.records import run_files

pytestmark = pytest.mark.slurm
slurm = reached()


def test_the_study_runs_on_a_cluster_unchanged(slurm, tmp_path):
    project = copy(tmp_path)
    wide = {"datasets": ["tiny"], "folds": 2, "models": ["mlp"], "nodes": 2}
    wide["schedules"] = ["cosine"]  # serial is also trained so
    project.configure(
        lambda config: config["studies"].update(wide=wide | {"strategies": ["shared_memory"]})
    )
    ended(by_profile(slurm, project))
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
    said = ended(by_profile(slurm, project))
    assert "8 runs trained, 0 of them diverged; 0 missing" in said
    assert len(run_files.below(project.results)) == 8
    logs = list(project.results.glob("calls/*/*.log"))
    assert len(logs) == 4, "of each model and strategy the two folds"
    assert not list((project.results / "logs" / "train").rglob("*.log"))


def test_a_choice_is_what_it_is_here(slurm, tmp_path):
    """The job of a chosen run reads the scores of runs that other jobs have trained."""
    there, here = copy(tmp_path / "there"), copy(tmp_path / "here")
    entry = {"name": "mlp", "hidden": [8], "batch_size": 16, "epochs": 2}
    entry |= {"optimizer": {"name": "sgd", "lr": [0.001, 0.1]}}
    study = {"datasets": ["tiny"], "models": ["swept"], "folds": 2, "select": 2}

    def change(config):
        config["models"] = {"swept": entry}
        config["studies"] = {"first": study}
        del config["runs_per_job"]

    there.configure(change)
    here.config.write_text(there.config.read_text())
    ended(by_profile(slurm, there))
    here.call()
    assert choices_of(there) == choices_of(here)


def choices_of(project):
    """Path of each choice -> the label of what is chosen, and the scores that it knows."""
    contents = {
        file.relative_to(project.results): json.loads(file.read_text())
        for file in (project.results / "selections").rglob("*.json")
    }
    assert contents
    return {
        path: (content["chosen"], [one["scores"] for one in content["candidates"].values()])
        for path, content in contents.items()
    }


def test_jobs_of_a_call_that_was_killed_are_not_submitted_twice(slurm, tmp_path):
    """SIGKILL of snakemake, then scancel of a job in mid-run: it goes on where it was."""
    slow = slow_model(tmp_path / "there", seconds=0.02, epochs=150)
    project = small(tmp_path / "there", slow, strategies=["shared_memory"], workers=[1])
    first = by_profile(slurm, project)
    wait_for(lambda: checkpoints_of(project))
    first.kill()
    first.communicate()
    said = ended(by_profile(slurm, project), returns=1)
    numbers = re.search(r"`scancel ([\d ]+)`", said)
    assert "of an earlier invocation: RUNNING" in said
    says(slurm, "scancel", *numbers[1].split())
    wait_for(lambda: not says(slurm, "squeue", "-h").strip(), 60)
    third = by_profile(slurm, project)
    wait_for(lambda: any("resumed after epoch" in log for log in logs_of(project)))
    says(slurm, "scancel", *says(slurm, "squeue", "-h", "-o", "%i", "-t", "RUNNING").split())
    ended(third)
    assert any("resumed after epoch" in log for log in logs_of(project))
    assert ends_like_a_local_call(project, tmp_path / "here")


def test_many_runs_share_one_allocation(slurm, tmp_path):
    allocation = Allocation(slurm, tmp_path / "there", seeds=[0, 1])
    allocation.ends_well()
    assert len(allocation.weights()) == 2 * RUNS
    # One job: neither runs nor tables are submitted.
    assert len(says(slurm, "squeue", "--states=all", "-h", "-n", "allcores").splitlines()) == 1
    assert (allocation.project.results / "studies" / "first" / "report.html").exists()
    assert not any("starting without" in log for log in allocation.logs())
    assert allocation.is_like_a_local_call(tmp_path / "here")


@pytest.mark.parametrize("why", ["time limit", "preemption"])
def test_runs_stop_in_mid_epoch_and_go_on_in_the_next_turn(slurm, tmp_path, why):
    folder = tmp_path / "there"
    # A step takes longer than a program that is not given time would live.
    model = slow_model(folder, seconds=1.5, epochs=1)
    if why == "time limit":  # the results may be on a scratch file system
        (tmp_path / "scratch").mkdir()
        (folder / "results").symlink_to(tmp_path / "scratch")
    allocation = Allocation(slurm, folder, model, models=["mlp"], strategies=["serial"])
    checkpoints = allocation.project.results / "checkpoints"
    wait_for(lambda: list(checkpoints.rglob("trace.allcores")))
    time.sleep(3)
    begun = len(list(checkpoints.rglob("trace.allcores")))
    if why == "preemption":
        urgent = ["--partition=urgent", "--nodes=3", "--exclusive", "--wrap=sleep 1"]
        says(slurm, "sbatch", "--output=/dev/null", *urgent)
    else:  # as SLURM does two minutes before the end
        says(slurm, "scancel", "--batch", "--signal=USR1", allocation.job)
    wait_for(lambda: allocation.state() == "PENDING")
    saved = {file.parent for file in checkpoints.rglob("latest.allcores")}
    assert len(saved) == begun, allocation.logs()
    allocation.ends_well()
    resumed = re.compile(r"resumed after epoch 0 of 1 and \d+ of 8 steps")
    assert sum(bool(resumed.search(log)) for log in allocation.logs()) == begun
    assert not any("starting without" in log for log in allocation.logs())
    assert allocation.is_like_a_local_call(tmp_path / "here")
