"""Time to accuracy on Fashion-MNIST: config/fashion_mnist.yaml, and what everybody copies.

Ours is scored after every epoch; the other one is mnist_example.py. Seconds of training, on all
cores, and of whole calls. It takes a quarter of an hour, so it has to be named.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import ROOT, report

from allcores.files import read_json

# Where Debian's package dataset-fashion-mnist has the original files; else they are downloaded.
ORIGINALS = Path("/usr/share/datasets/fashion-mnist")
NAMED = 0.925


def theirs(data):
    """[(seconds of training so far, accuracy on the test set) after each epoch]."""
    program = Path(__file__).with_name("mnist_example.py")
    run = subprocess.run(
        [sys.executable, program, data], check=True, stdout=subprocess.PIPE, text=True
    )
    lines = [line.split() for line in run.stdout.splitlines()]
    return [(float(seconds), float(accuracy)) for _, seconds, accuracy in lines]


def ours(folder):
    """The same of the study in a folder."""
    config = ROOT / "config" / "fashion_mnist.yaml"
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "-s",
        ROOT / "workflow" / "Snakefile",
        "--cores",
        "all",
    ]
    subprocess.run([*command, "--quiet", "all", "--configfile", config], cwd=folder, check=True)
    (file,) = Path(folder).rglob("runs/**/metrics.json")
    curve, seconds = [], 0.0
    for epoch in read_json(file)["epochs"]:
        seconds += epoch["seconds"]
        curve.append((seconds, epoch["accuracy"]))
    return curve


def until(curve, accuracy):
    """Seconds until an accuracy is reached; none, if it is not."""
    return next(([seconds] for seconds, reached in curve if reached >= accuracy), [float("inf")])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "results" / "downloads" / "fashion_mnist"
        raw = data / "FashionMNIST" / "raw"
        raw.mkdir(parents=True)
        for file in ORIGINALS.glob("*.gz"):
            shutil.copy(file, raw)
        began = time.perf_counter()
        curve = ours(folder)
        whole = time.perf_counter() - began
        began = time.perf_counter()
        example = theirs(data)
        of_example = time.perf_counter() - began
    took, reached = example[-1]
    as_accurate = until(curve, reached)
    report(
        "fashion_mnist",
        [
            ("the example, 14 epochs: accuracy at the end", "%", [100 * reached]),
            ("  its training", "s", [took]),
            ("  the whole call", "s", [of_example]),
            ("ours: accuracy at the end", "%", [100 * curve[-1][1]]),
            ("  its training", "s", [curve[-1][0]]),
            ("  the whole call, with report", "s", [whole]),
            (
                "  until it is as accurate as the example at the end",
                "s",
                until(curve, reached),
            ),
            (
                "  the same, relative to the example",
                "x",
                [until(curve, reached)[0] / example[-1][0]],
            ),
            (f"  until {NAMED:.1%}", "s", until(curve, NAMED)),
            (f"the example until {NAMED:.1%}", "s", until(example, NAMED)),
        ],
    )
