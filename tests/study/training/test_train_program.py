"""scripts/train.py by hand."""

import argparse
import dataclasses
import subprocess
import sys

import patience
import pytest
from conftest import ENVIRONMENT, ROOT, train_program

from allcores.files import read_json
from allcores_study.campaign import by_hand
from allcores_study.config import registry
from allcores_study.data import storage


def train(*flags, cwd):
    return subprocess.run(
        [*train_program(), *flags],
        cwd=cwd,
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
    )


# The smallest models and data, as a config of one run has them.
ONE_RUN = """
models:
  mlp: {hidden: [8], batch_size: 32, epochs: 1, optimizer: {name: sgd, lr: 0.1}}
  lenet: {width: 0.5, batch_size: 32, epochs: 1, optimizer: {name: adam, lr: 0.002}}
  swept: {name: mlp, hidden: [8], batch_size: [8, 16], epochs: 1, optimizer: {name: sgd, lr: 0.1}}
datasets:
  tiny: {name: fake, count: 100, test: 0, size: 16, classes: 3}
"""


def config_of_one_run(folder, text=ONE_RUN):
    """The flags by which it is read."""
    (folder / "one.yaml").write_text(text)
    return ["--config=one.yaml", "--dataset=tiny"]


def test_help_names_everything_that_may_be_asked_for(tmp_path):
    run = train("--help", cwd=tmp_path)
    assert run.returncode == 0
    known = (registry.models, registry.datasets, registry.strategies)
    for name in (name for names in known for name in names()):
        assert name in run.stdout


def test_by_hand_it_prints_accuracy_and_seconds(tmp_path):
    flags = ["--model=lenet", "--epochs=2", "--strategy=ddp", "--workers=2"]
    run = train(*flags, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "epoch 2/2" in run.stdout
    assert "held-out samples" in run.stdout
    (path,) = tmp_path.glob("results/by_hand/runs/*/metrics.json")
    metrics = read_json(path)
    assert metrics["train_samples"] == 1437
    # What the config says of the model holds where no flag says otherwise.
    assert metrics["settings"]["batch_size"] == 32
    assert metrics["settings"]["crop"] == 2


def run_of(*flags):
    """The run that these flags describe."""
    parser = argparse.ArgumentParser()
    by_hand.add_flags(parser)
    return by_hand.expanded(parser.parse_args(["--model=lenet", *flags]))[1].of(by_hand.STUDY)[0]


def test_flags_outweigh_the_config():
    assert run_of().optimizer.options == {"lr": 0.002}
    changed = run_of("--epochs=7", "--dataset=cifar10", "--strategy=ring", "--workers=3")
    assert (changed.epochs, changed.batch_size, changed.workers) == (7, 32, 3)
    assert (changed.dataset.name, changed.strategy.name) == ("cifar10", "ring")
    assert (changed.folds, changed.fold) == (5, 0)


def test_all_else_is_in_a_config_of_one_run(tmp_path):
    other = ONE_RUN + "strategies: {two: {name: parameter_server, servers: 2}}\n"
    config_of_one_run(tmp_path, other)
    flags = [f"--config={tmp_path}/one.yaml", "--dataset=tiny", "--strategy=two"]
    run = run_of(*flags)
    assert (run.model.options, run.dataset.options["count"]) == ({"width": 0.5}, 100)
    assert (run.strategy.name, run.servers) == ("parameter_server", 2)
    (tmp_path / "one.yaml").write_text(other.replace("width", "widht"))
    with pytest.raises(ValueError, match=r"one.yaml:4: models.lenet.widht: unknown key"):
        run_of(*flags)
    (tmp_path / "one.yaml").write_text(other)
    with pytest.raises(ValueError, match="swept is swept over; write a study with one"):
        run_of(*flags, "--model=swept")
    with pytest.raises(ValueError, match="--workers: found 2; serial takes only one"):
        run_of("--workers=2")


def test_a_dataset_is_prepared_once(tmp_path):
    flags = ["--model=mlp", *config_of_one_run(tmp_path)]
    assert train(*flags, cwd=tmp_path).returncode == 0
    (info,) = tmp_path.glob("results/by_hand/data/tiny_*/dataset.json")
    made = info.stat().st_mtime_ns
    assert train(*flags, cwd=tmp_path).returncode == 0
    assert info.stat().st_mtime_ns == made
    dataclasses.replace(storage.read_record(info.parent), made_of="other code").write(info)
    assert train(*flags, cwd=tmp_path).returncode == 0
    assert info.stat().st_mtime_ns > made


LOADED_BY_TORCH = """
import runpy, sys
sys.path.insert(0, {scripts!r})
from allcores_study.datasets import digits
load = digits.load
def load_and_compute(folder):
    import torch
    torch.ones(1 << 22).add_(1)
    return load(folder)
digits.load = load_and_compute
runpy.run_path({program!r}, run_name="__main__")
"""


def test_loading_by_torch_leaves_no_threads_behind(tmp_path):
    """With such threads, forked ranks would wait for them forever; torchvision's loaders do so."""
    scripts = ROOT / "scripts"
    program = LOADED_BY_TORCH.format(scripts=str(scripts), program=str(scripts / "train.py"))
    flags = ["--model=lenet", "--epochs=1", "--strategy=ddp", "--workers=2"]
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
    flags = ["--model=lenet", "--strategy=ddp", "--workers=2"]
    run = train(*flags, "--cores=1", cwd=tmp_path)
    assert run.returncode == 1
    assert "this run needs 2 cores (2 processes x 1 threads), but was given 1" in run.stderr


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
