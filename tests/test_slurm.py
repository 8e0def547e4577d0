"""Miniature studies on a real SLURM, brought up on this machine: make test-slurm."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import torch
from conftest import ENVIRONMENT, ROOT, same_weights
from project import RUNS, copy
from test_strategies import wait_for

pytestmark = pytest.mark.slurm
UP, DOWN = (ROOT / "tests" / "slurm" / name for name in ("up.sh", "down.sh"))


@pytest.fixture(scope="module")
def slurm():
    """The environment in which sbatch and squeue reach the cluster."""
    with cluster() as environment:
        yield environment


@contextlib.contextmanager
def cluster(**settings):
    """Bring up a cluster, with settings of up.sh; gives the environment that reaches it."""
    # Not pytest's own folder: munge wants every folder above its socket open to all.
    lab = Path(tempfile.mkdtemp(prefix="slurm-lab-"))
    lab.chmod(0o755)
    environment = ENVIRONMENT | {"LAB": str(lab)} | settings
    up = subprocess.run([UP], env=environment, text=True, capture_output=True)
    if up.returncode == 77:
        pytest.skip(up.stderr.strip().splitlines()[-1])
    try:
        assert up.returncode == 0, up.stderr
        binaries = str(Path(sys.executable).parent)
        yield environment | {
            "SLURM_CONF": f"{lab}/etc/slurm.conf",
            "PATH": os.pathsep.join([binaries, environment["PATH"]]),
            "BIN": binaries,
        }
    finally:
        subprocess.run([DOWN], env=environment, check=True)
        shutil.rmtree(lab)


def says(slurm, *command):
    run = subprocess.run(command, env=slurm, text=True, capture_output=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def checkpoints_of(project):
    return list((project.results / "checkpoints").rglob("latest.allcores"))


def logs_of(project):
    return [log.read_text() for log in (project.results / "logs/train").rglob("*.log")]


def by_profile(slurm, project, *arguments):
    """A call of snakemake that submits a job per run, as a process."""
    link = project.folder / "slurm"
    if not link.exists():
        link.symlink_to("profiles/slurm")
    command = [sys.executable, "-m", "snakemake", "--profile", "slurm"]
    command += ["--configfile", project.config, "--jobs", "8"]
    # The machine is small and the jobs are short: ask for less, and look for their end sooner.
    command += ["--default-resources", "mem_mb=500", "runtime=5"]
    command += ["--set-resources", "train:mem_mb=900", *arguments]
    command += ["--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "5"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=project.folder, env=slurm, text=True, **pipes)


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


# Its steps take as long on every machine.
SLOW = """
import time

import torch


class Net(torch.nn.Sequential):
    def __init__(self, channels, image_size, classes):
        pixels = channels * image_size[0] * image_size[1]
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(pixels, classes))

    def forward(self, images):
        time.sleep(SECONDS * self.training)
        return super().forward(images)
"""


def slow_model(folder, seconds, epochs):
    """An entry of `models`: 8 steps in an epoch, each of so many seconds; its file in a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "slow.py").write_text(SLOW.replace("SECONDS", str(seconds)))
    optimizer = {"name": "sgd", "lr": 0.05}
    return {"import": "slow:Net", "batch_size": 4, "epochs": epochs, "optimizer": optimizer}


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
    wait_for(lambda: not says(slurm, "squeue", "-h").strip(), seconds=60)
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
    for asked, told in (
        ("train:runtime=3000", "the partition main ends jobs after 1440 minutes"),
        ("train:mem_mb=90000", "Requested node configuration is not available"),
        ("train:slurm_partition=nix", "Invalid partition name specified"),
    ):
        run = by_profile(slurm, project, "--set-resources", asked)
        said, _ = run.communicate()
        assert run.returncode == 1
        assert "SLURM would never start these jobs:\ntrain, 1 CPUs" in said
        assert told in said


def weights_of(project):
    return {
        str(file.relative_to(project.results / "runs")): torch.load(file)
        for file in sorted((project.results / "runs").rglob("weights.pt"))
    }


def ends_like_a_local_call(project, folder):
    """Whether a call on this machine ends with the same weights, bit for bit; what is trained over
    several nodes, with those of serial training up to rounding."""
    local = copy(folder)
    shutil.copy(project.config, local.config)
    local.configure(lambda config: config["studies"].pop("wide", None))
    local.call()
    found, expected = weights_of(project), weights_of(local)
    over_nodes = {name: found.pop(name) for name in list(found) if "_nodes" in name}
    for name, weights in over_nodes.items():
        serial = expected[re.sub("/[^/]*/[^/]*_nodes2/", "/serial/w1t1/", name)]
        assert all(torch.allclose(weights[key], serial[key], atol=1e-5) for key in serial)
    return found.keys() == expected.keys() and all(
        same_weights(found[name], expected[name]) for name in expected
    )


class Allocation:
    """A project that is trained by profiles/allocation.sh, and its job.

    Args:
        wide: strategies of a study over two nodes.
        model: an entry of `models` that takes the place of `mlp`.
        asked: options of sbatch; None: whole nodes.
        study: changes of the study.
    """

    def __init__(self, slurm, folder, nodes=2, wide=(), model=None, asked=None, **study):
        self.slurm = slurm
        self.project = copy(folder)

        def change(config):
            first = config["studies"]["first"]
            first.update(study)
            config["models"]["mlp"] = model or config["models"]["mlp"]
            if wide:
                of_wide = {"models": ["mlp"], "strategies": [*wide], "nodes": 2, "workers": [1]}
                config["studies"]["wide"] = first | of_wide

        self.project.configure(change)
        asked = asked or [f"--nodes={nodes}", "--exclusive", "--mem=6000"]
        command = ["sbatch", "--parsable", f"--chdir={folder}", "--time=10", *asked]
        command.append(ROOT / "profiles" / "allocation.sh")
        self.job = says(slurm, *command, "--configfile", self.project.config).strip()
        self.log = folder / f"allcores-{self.job}.log"

    def state(self):
        return says(self.slurm, "squeue", "--states=all", "-h", "-o", "%T", "-j", self.job).strip()

    def nodes(self):
        """Their names."""
        names = says(self.slurm, "squeue", "--states=all", "-h", "-o", "%N", "-j", self.job)
        return says(self.slurm, "scontrol", "show", "hostnames", names.strip()).split()

    def ends_well(self):
        wait_for(lambda: self.state() not in ("PENDING", "RUNNING", "COMPLETING"), seconds=200)
        assert self.state() == "COMPLETED", self.log.read_text()

    def logs(self):
        return logs_of(self.project)

    def weights(self):
        return weights_of(self.project)

    def is_like_a_local_call(self, folder):
        return ends_like_a_local_call(self.project, folder)


OVER_NODES = ("shared_memory", "ddp", "ring", "parameter_server")


def test_many_runs_share_one_allocation(slurm, tmp_path):
    allocation = Allocation(slurm, tmp_path / "there", wide=OVER_NODES, seeds=[0, 1, 2])
    allocation.ends_well()
    assert len(allocation.weights()) == 3 * (RUNS + 2 * len(OVER_NODES))
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
    wait_for(lambda: allocation.state() == "PENDING", seconds=60)
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


def kill_node(slurm, name):
    """Everything of a node dies at once: its daemon and all in its namespace."""
    daemon = int(Path(slurm["LAB"], "run", f"slurmd.{name}.pid").read_text())

    def namespace(pid):
        try:
            return Path(f"/proc/{pid}/ns/uts").readlink()
        except OSError:  # it has ended, or is nobody's business
            return None

    assert namespace(daemon) != namespace(os.getpid())
    gone = [pid for pid in psutil.pids() if namespace(pid) == namespace(daemon)]
    for pid in gone:
        with contextlib.suppress(psutil.NoSuchProcess):  # ended with another of them
            psutil.Process(pid).kill()
