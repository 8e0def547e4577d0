"""From the start of the process to the end of the first training step, as each run records it.

By itself, as a run by hand or on a cluster starts, and within a call of snakemake, from its warm
process.
"""

import dataclasses
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import ROOT, in_turn, report
from train_once import by_flags

from allcores.files import read_json
from allcores_study.campaign import warm_start
from allcores_study.data import preparation, storage
from allcores_study.data.folds import Assignable, write
from allcores_study.training import run_request
from allcores_study.training.run_request import RunRequest

REPEATS = 7


def run_of(*flags):
    run = by_flags("lenet", "--epochs=1", *flags)
    return dataclasses.replace(run, train_size=64)


def start_up(run, folder, is_warm=False):
    folder = Path(folder)
    request = RunRequest(
        run=run,
        data_folder=folder / "data",
        checkpoint_folder=folder / "checkpoints",
        output=folder / "output",
        fold_file=folder / "folds.json",
    )
    run_request.write(folder / "job.json", folder, [request])
    command = [*warm_start.command(ROOT / "scripts" / "train.py", is_warm)]
    command += ["--job", folder / "job.json"]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    return read_json(folder / "output" / "metrics.json")["start_up_seconds"]


def imports_of_torch(folder):
    code = "import time; t = time.perf_counter(); import torch; print(time.perf_counter() - t)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(run.stdout)


if __name__ == "__main__":
    serial = run_of()
    four = run_of("--strategy=ddp", "--workers=4")
    with tempfile.TemporaryDirectory() as folder:
        preparation.prepare(serial.dataset, folder, f"{folder}/data")
        opened = storage.open_dataset(f"{folder}/data")
        write(f"{folder}/folds.json", Assignable.of(opened), 5, 0, 0)
        stop = warm_start.start(f"{folder}/log")
        timings = in_turn(
            {
                "serial, warm": lambda: start_up(serial, folder, True),
                "ddp, warm": lambda: start_up(four, folder, True),
                "import torch": lambda: imports_of_torch(folder),
                "serial": lambda: start_up(serial, folder),
                "ddp": lambda: start_up(four, folder),
                "vgg": lambda: start_up(
                    dataclasses.replace(
                        serial,
                        model=dataclasses.replace(
                            serial.model, name="vgg11", options={"width": 0.1}
                        ),
                    ),
                    folder,
                ),
            },
            REPEATS,
        )
        stop()
    differences = [ddp - one for ddp, one in zip(timings["ddp"], timings["serial"], strict=True)]
    report(
        "start_up",
        [
            ("`import torch` alone", "s", timings["import torch"]),
            ("serial, LeNet: process start to first step", "s", timings["serial"]),
            ("serial, VGG-11 (imports torchvision)", "s", timings["vgg"]),
            ("ddp with 4 workers, LeNet", "s", timings["ddp"]),
            ("ddp with 4 workers - serial", "s", differences),
            ("serial, LeNet, within a call of snakemake", "s", timings["serial, warm"]),
            ("ddp with 4 workers, LeNet, within a call", "s", timings["ddp, warm"]),
        ],
    )
