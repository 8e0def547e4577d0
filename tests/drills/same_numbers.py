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
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
# Exclusive, so that each network is trained alone. What hogwild and async_parameter_server end with
# depends on timing where there are several workers.
CONFIG = """
models:
  lenet: {batch_size: 16, epochs: 3, optimizer: {name: adamw, lr: 0.001}, ema: 0.9, clip_norm: 1.0,
          precision: fp32, memory_format: contiguous}
  plain: {name: lenet, batch_size: 16, epochs: 3, optimizer: {name: adamw, lr: 0.001},
          precision: fp32, memory_format: contiguous}
datasets:
  made: {name: fake, count: 203, test: 50, size: 16}
strategies:
  accelerator: {device: cpu}
studies:
  together: &study
    datasets: [made]
    folds: test
    models: [plain]
    strategies: [ddp, gossip, local_sgd, parameter_server, ring, shared_memory]
    workers: [2]
    curves: true
    exclusive: true
    oversubscribe: true
  alone:
    <<: *study
    strategies: [serial, data_parallel, accelerator, hogwild, async_parameter_server]
    workers: [1]
  schedules:
    <<: *study
    models: [plain, lenet]
    strategies: [serial]
    schedules: [constant, cosine, warm_restarts, multistep, plateau, onecycle]
    workers: [1]
"""


def trained(tree, folder):
    """Path of each run of CONFIG -> the numbers that it ends with in a version of the project: of
    weights a digest, of metrics those of learning."""
    folder.mkdir()
    is_older = (tree / "scripts" / "allcores_study" / "datasets" / "synthetic.py").exists()
    data = "synthetic" if is_older else "fake"  # had another name
    (folder / "same.yaml").write_text(CONFIG.replace("name: fake", f"name: {data}"))
    command = [sys.executable, "-m", "snakemake", "-s", tree / "workflow" / "Snakefile"]
    command += ["--workflow-profile", tree / "workflow" / "profiles" / "default"]
    command += ["--cores", "2", "--configfile", "same.yaml", "--until", "train"]
    process = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": ""},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if process.returncode:
        sys.exit(f"{tree}\n{process.stdout}")
    runs = folder / "results" / "same" / "runs"
    files = sorted(runs.rglob("metrics.json"))
    return {str(file.parent.relative_to(runs)): numbers(file.parent) for file in files}


def numbers(run):
    weights = torch.load(run / "weights.pt")
    metrics = json.loads((run / "metrics.json").read_text())
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
    with tempfile.TemporaryDirectory() as scratch:
        old = Path(scratch) / "old"
        old.mkdir()
        archive = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, check=True, capture_output=True
        ).stdout
        subprocess.run(["tar", "x"], cwd=old, input=archive, check=True)
        before, now = trained(old, Path(scratch) / "before"), trained(ROOT, Path(scratch) / "now")
    different = sorted({*before, *now} - {p for p in before if before[p] == now.get(p)})
    for path in sorted(now):
        print(f"{'DIFFERENT' if path in different else 'same':10}{path}")
    if different:
        sys.exit(f"{len(different)} of {len(now)} differ from {commit}: {', '.join(different)}")
    print(f"all {len(now)} end with the same bits as {commit}")


if __name__ == "__main__":
    main(*sys.argv[1:])
