"""scripts/train.py by hand."""

import dataclasses
import os
import subprocess
import sys

import patience
from conftest import ENVIRONMENT, ROOT, train_program

from allcores.data import storage
from allcores.files import read_json
from allcores.study import registry
from allcores.training import commandline, recipes


def train(*flags, cwd):
    return subprocess.run(
        [*train_program(), *flags],
        cwd=cwd,
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
    )


def test_help_names_everything_that_may_be_asked_for(tmp_path):
    run = train("--help", cwd=tmp_path)
    assert run.returncode == 0
    known = (registry.models, registry.datasets, registry.schedules, registry.strategies)
    for name in (name for names in known for name in names()):
        assert name in run.stdout


def test_by_hand_it_prints_accuracy_and_seconds(tmp_path):
    flags = [
        "--model=lenet",
        "--set=train_sizes=200",
        "--epochs=2",
        "--strategy=ddp",
        "--workers=2",
    ]
    run = train(*flags, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "epoch 2/2" in run.stdout
    assert "held-out samples" in run.stdout
    (path,) = tmp_path.glob("results/by_hand/*/metrics.json")
    metrics = read_json(path)
    assert metrics["train_samples"] == 200
    # What the config says of the model holds where no flag says otherwise.
    assert metrics["settings"]["batch_size"] == 32
    assert metrics["settings"]["crop"] == 2


def test_flags_outweigh_the_config():
    def run_of(*flags):
        return commandline.run_of(commandline.parse(["--model=lenet", *flags], ""))

    assert run_of().optimizer.options == {"lr": 0.002}
    assert run_of("--set=optimizer.lr=0.1").optimizer.options == {"lr": 0.1}
    settings = ("optimizer.name=sgd", "batch_size=5", "width=0.5")
    changed = run_of("--epochs=7", *(f"--set={setting}" for setting in settings))
    assert changed.optimizer.name == "SGD"
    assert (changed.epochs, changed.batch_size) == (7, 5)
    assert changed.model.options == {"width": 0.5}
    assert run_of("--set=folds=3", "--fold=2").fold == 2


def test_a_dataset_is_prepared_once(tmp_path):
    flags = ["--model=mlp", "--set=train_sizes=64", "--epochs=1"]
    assert train(*flags, cwd=tmp_path).returncode == 0
    (info,) = tmp_path.glob("results/by_hand/data/digits_*/dataset.json")
    made = info.stat().st_mtime_ns
    assert train(*flags, cwd=tmp_path).returncode == 0
    assert info.stat().st_mtime_ns == made
    dataclasses.replace(storage.read_record(info.parent), made_of="other code").write(info)
    assert train(*flags, cwd=tmp_path).returncode == 0
    assert info.stat().st_mtime_ns > made


LOADED_BY_TORCH = """
import runpy, sys
sys.path.insert(0, {scripts!r})
from allcores.datasets import digits
load = digits.load
def load_and_compute(folder):
    import torch
    torch.ones(1 << 22).add_(1)
    return load(folder)
digits.load = load_and_compute
runpy.run_path({program!r}, run_name="__main__")
"""


def test_loading_by_torch_leaves_no_threads_behind(tmp_path):
    """With such threads, forked ranks would wait for them for ever; torchvision's loaders do so."""
    scripts = ROOT / "scripts"
    program = LOADED_BY_TORCH.format(scripts=str(scripts), program=str(scripts / "train.py"))
    flags = ["--model=lenet", "--set=train_sizes=64", "--epochs=1"]
    settings = ("threads_per_worker=2", "precision=fp32", "memory_format=contiguous")
    flags += [f"--set={setting}" for setting in settings]
    command = [sys.executable, "-c", program, *flags]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
        timeout=patience.seconds(300),
    )
    assert "epoch 1/1" in run.stdout, run.stderr


def test_it_refuses_to_run_on_fewer_cores_than_it_needs(tmp_path):
    settings = commandline.run_of(
        commandline.parse(["--model=lenet", "--strategy=ddp", "--workers=2"], "")
    ).to_json()
    run = train(f"--settings={settings}", "--cores=1", cwd=tmp_path)
    assert run.returncode == 1
    assert "this run needs 2 cores (2 processes x 1 threads), but was given 1" in run.stderr


def test_what_is_auto_is_measured_once_and_kept(tmp_path):
    flags = ["--model=mlp", "--set=hidden=[8]", "--set=train_sizes=100", "--epochs=1"]
    flags += [f"--set={key}=auto" for key in ("threads_per_worker", "precision", "memory_format")]
    first = train(*flags, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "measuring the fastest recipe" in first.stdout
    thread_counts = recipes.thread_counts(len(os.sched_getaffinity(0)))
    expected = len(recipes.precisions()) * len(thread_counts)
    assert first.stdout.count("samples/s\n") == expected
    again = train(*flags, "--set=seeds=1", cwd=tmp_path)
    assert "measuring" not in again.stdout
    assert first.stdout.partition("fastest: ")[2].splitlines()[0] in again.stdout
    assert len(list(tmp_path.glob("results/by_hand/recipes/mlp_*.json"))) == 1


DROPPING = """
import os, signal, time, train
train.STOPPING = 0.1
for number in (signal.SIGTERM, signal.SIGALRM):
    signal.signal(number, train.stop)

class Dropping:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

try:
    Dropping()
    time.sleep(10)
except KeyboardInterrupt as error:
    print(f"stopped by {error}")
"""


def test_a_request_to_stop_that_python_drops_is_repeated():
    """As it drops exceptions in destructors, it does in callbacks of fork() and ctypes."""
    environment = ENVIRONMENT | {"PYTHONPATH": str(ROOT / "scripts")}
    command = [sys.executable, "-c", DROPPING]
    run = subprocess.run(command, env=environment, text=True, capture_output=True)
    assert "Exception ignored in" in run.stderr
    assert run.stdout == "stopped by a signal\n"
