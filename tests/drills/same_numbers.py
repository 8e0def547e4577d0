"""Train with every strategy and schedule in two versions of the project: are the bits the same?

    python tests/drills/same_numbers.py COMMIT

A change that should not alter numbers is shown not to: final weights, losses and accuracies of the
working tree are compared with those of a commit.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
TRAINING = ["--model=lenet", "--dataset=synthetic", "--epochs=3", "--fold=1", "--curves"]
TRAINING += ["--set=dataset.count=203", "--set=dataset.test=50", "--set=dataset.size=16"]
TRAINING += ["--set=folds=3", "--set=optimizer.name=adamw", "--set=batch_size=16"]
# What is fastest may be another recipe each time.
TRAINING += ["--set=precision=fp32", "--set=memory_format=contiguous"]
# Their numbers depend on timing when there are several workers.
ASYNCHRONOUS = ("hogwild", "async_parameter_server")
STRATEGIES = ("accelerator", "data_parallel", "ddp", "gossip", "local_sgd", "parameter_server")
STRATEGIES += ("ring", "serial", "shared_memory", *ASYNCHRONOUS)
ONE_WORKER = ("serial", "data_parallel", "accelerator", *ASYNCHRONOUS)
SCHEDULES = ("constant", "cosine", "warm_restarts", "multistep", "plateau", "onecycle")


def flags():
    """Name of a training -> the flags that tell it from the others."""
    by_strategy = {
        name: [f"--strategy={name}", f"--workers={1 if name in ONE_WORKER else 2}"]
        for name in STRATEGIES
    }
    by_strategy["accelerator"].append("--set=strategy.device=cpu")
    return by_strategy | {name: [f"--set=schedules={name}"] for name in SCHEDULES}


def train(tree, folder, name, own_flags):
    """The numbers that a training ends with: of weights a digest, of metrics those of learning."""
    output = folder / name
    command = [
        sys.executable,
        tree / "scripts" / "train.py",
        *TRAINING,
        *own_flags,
        "--output",
        output,
    ]
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PYTHONPATH": ""}
    process = subprocess.run(
        command, cwd=folder, env=environment, text=True, capture_output=True, check=False
    )
    if process.returncode:
        sys.exit(f"{tree}: {name}\n{process.stdout}{process.stderr}")
    weights = torch.load(output / "weights.pt")
    metrics = json.loads((output / "metrics.json").read_text())
    return {
        "weights": {k: hashlib.sha256(v.numpy().tobytes()).hexdigest() for k, v in weights.items()},
        "epochs": [
            {key: epoch[key] for key in ("loss", "lr", "accuracy", "held_out_loss")}
            for epoch in metrics["epochs"]
        ],
        "accuracy": metrics["accuracy"],
        "confusion": metrics["confusion"],
    }


def main(commit):
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        old = Path(scratch) / "old"
        old.mkdir()
        archive = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, check=True, capture_output=True
        ).stdout
        subprocess.run(["tar", "x"], cwd=old, input=archive, check=True)
        trees = {"before": old, "now": ROOT}
        jobs = {
            (name, version): pool.submit(
                train, tree, Path(scratch) / version / name, name, own_flags
            )
            for name, own_flags in flags().items()
            for version, tree in trees.items()
        }
        different = []
        for name in flags():
            same = jobs[name, "before"].result() == jobs[name, "now"].result()
            print(f"{name:24}{'same' if same else 'DIFFERENT'}", flush=True)
            different += [] if same else [name]
    if different:
        sys.exit(f"{len(different)} of {len(flags())} differ from {commit}: {', '.join(different)}")
    print(f"all {len(flags())} end with the same bits as {commit}")


if __name__ == "__main__":
    main(*sys.argv[1:])
