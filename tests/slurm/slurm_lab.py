"""A real SLURM, brought up on this machine, and the two ways in which projects use it."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import patience
import pytest
import torch
from conftest import ENVIRONMENT, ROOT, same_weights
from patience import wait_for
from project import copy

UP, DOWN = (ROOT / "tests" / "slurm" / name for name in ("up.sh", "down.sh"))


@contextlib.contextmanager
def cluster(**settings):
    """Bring up a cluster, with settings of up.sh; gives the environment that reaches it."""
    # Not pytest's own folder: munge wants every folder above its socket open to all.
    lab = Path(tempfile.mkdtemp(prefix="slurm-lab-"))
    lab.chmod(0o755)
    # One for each of the processes that pytest-xdist divides the tests among.
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    environment = ENVIRONMENT | {"LAB": str(lab), "NUMBER": number} | settings
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
        end_calls()
        subprocess.run([DOWN], env=environment, check=True)
        shutil.rmtree(lab)


def reached(**settings):
    """A fixture of a module: the environment in which sbatch and squeue reach a cluster.

    Args:
        settings: of up.sh; a test whose parameter `slurm` is indirect brings its own.
    """

    @pytest.fixture(scope="module")
    def slurm(request):
        with cluster(**getattr(request, "param", settings)) as environment:
            yield environment

    return slurm


def says(slurm, *command):
    run = subprocess.run(command, env=slurm, text=True, capture_output=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def checkpoints_of(project):
    return list((project.results / "checkpoints").rglob("latest.allcores"))


def logs_of(project):
    return [log.read_text() for log in (project.results / "logs/train").rglob("*.log")]


def weights_of(project):
    return {
        str(file.relative_to(project.results / "runs")): torch.load(file)
        for file in sorted((project.results / "runs").rglob("weights.pt"))
    }


def ends_like_a_local_call(project, folder):
    """Whether a call on this machine ends with the same weights, bit for bit; what is trained over
    several nodes, with those of serial training up to rounding."""
    local = copy(folder)
    if (project.folder / "slow.py").exists():
        slow_model(folder, seconds=0, epochs=0)  # the same network, without waiting
    shutil.copy(project.config, local.config)
    local.configure(lambda config: config["studies"].pop("wide", None))
    local.call()
    cluster_weights, expected = weights_of(project), weights_of(local)
    over_nodes = {
        name: cluster_weights.pop(name) for name in list(cluster_weights) if "_nodes" in name
    }
    for name, weights in over_nodes.items():
        serial = expected[re.sub("/[^/]*/[^/]*_nodes2/", "/serial/w1t1/", name)]
        assert all(torch.allclose(weights[key], serial[key], atol=1e-5) for key in serial)
    return cluster_weights.keys() == expected.keys() and all(
        same_weights(cluster_weights[name], expected[name]) for name in expected
    )


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


# The smallest study.
SMALL = {"models": ["mlp"], "strategies": ["serial"]}


def small(folder, model=None, **study):
    """A project with a study that is SMALL except for these changes.

    Args:
        model: an entry of `models` that takes the place of `mlp`.
    """
    project = copy(folder)

    def change(config):
        config["studies"]["first"].update(SMALL | study)
        config["models"]["mlp"] = model or config["models"]["mlp"]

    project.configure(change)
    return project


def ended(call, limit=230, returns=0):
    """What a call has said, once it has ended as it should."""
    said = patience.ended(call, limit)
    assert call.returncode == returns, said
    return said


def by_profile(slurm, project, *arguments):
    """A call of snakemake that submits a job per run, as a process."""
    link = project.folder / "slurm"
    if not link.exists():
        link.symlink_to("profiles/slurm")
    command = [sys.executable, "-m", "snakemake", "--profile", "slurm"]
    command += ["--configfile", project.config, "--jobs", "8"]
    # The machine is small and the jobs are short: ask for less, and look for their end sooner.
    command += ["--default-resources", "mem_mb=500", "runtime=60"]
    command += ["--set-resources", "train:mem_mb=900", "train_several:mem_mb=900", *arguments]
    command += ["--allcores-slurm-init-seconds-before-status-checks", "2", "--latency-wait", "5"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    call = subprocess.Popen(command, cwd=project.folder, env=slurm, text=True, **pipes)
    CALLS.append(call)
    return call


# Calls of by_profile(); on SIGTERM they would wait for their jobs.
CALLS = []


def end_calls():
    """End the calls that a test has left behind."""
    while CALLS:
        call = CALLS.pop()
        if call.poll() is None:
            call.send_signal(signal.SIGINT)  # cancels their jobs
            try:
                call.communicate(timeout=patience.seconds(20))
            except subprocess.TimeoutExpired:
                call.kill()
                call.communicate()


class Allocation:
    """A project that is trained by profiles/allocation.sh, and its job.

    Args:
        model: an entry of `models` that takes the place of `mlp`.
        asked: options of sbatch; None: a whole node.
        study: changes of the study.
    """

    def __init__(self, slurm, folder, model=None, asked=None, **study):
        self.slurm = slurm
        self.project = copy(folder)

        def change(config):
            first = config["studies"]["first"]
            first.update(study)
            config["models"]["mlp"] = model or config["models"]["mlp"]

        self.project.configure(change)
        give_back_drained_nodes(slurm)
        asked = asked or ["--nodes=1", "--exclusive", "--mem=6000"]
        command = ["sbatch", "--parsable", f"--chdir={folder}", "--time=60", *asked]
        command.append(ROOT / "profiles" / "allocation.sh")
        self.job = says(slurm, *command, "--configfile", self.project.config).strip()
        self.log = folder / f"allcores-{self.job}.log"

    def state(self):
        return says(self.slurm, "squeue", "--states=all", "-h", "-o", "%T", "-j", self.job).strip()

    def ended(self, limit=200):
        """The state in which it has ended."""
        try:
            wait_for(lambda: self.state() not in ("PENDING", "RUNNING", "COMPLETING"), limit)
        except AssertionError:
            print(says(self.slurm, "sinfo", "-R"), says(self.slurm, "squeue"), self.log.read_text())
            raise
        return self.state()

    def ends_well(self):
        assert self.ended() == "COMPLETED", self.log.read_text()

    def logs(self):
        return logs_of(self.project)

    def weights(self):
        return weights_of(self.project)

    def is_like_a_local_call(self, folder):
        return ends_like_a_local_call(self.project, folder)


def give_back_drained_nodes(slurm):
    """On a crowded machine SLURM takes a slow end of a job for a broken node, and drains it."""
    for line in says(slurm, "sinfo", "-h", "-N", "-t", "drain", "-o", "%N %E").splitlines():
        print("drained:", line)
        says(slurm, "scontrol", "update", f"nodename={line.split()[0]}", "state=resume")
