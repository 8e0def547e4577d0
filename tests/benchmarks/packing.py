"""A campaign of 30 runs of mixed length and width, packed by Snakemake: makespan against the area.

The lower bound is the sum of the core-seconds of all runs, each from its start to its end,
divided by the cores. The makespan counts from the start of snakemake to the end of the last run.
"""

import subprocess
import tempfile
import time
from pathlib import Path

from measure import ROOT, SNAKEMAKE, report, sized

from allcores.machine import cores
from allcores_study.records import run_files

MODELS = """
models:
  short: {name: lenet, batch_size: 32, epochs: 2, optimizer: {name: adam, lr: 0.002}}
  medium: {name: lenet, batch_size: 32, epochs: 8, optimizer: {name: adam, lr: 0.002}}
  long: {name: vgg11, width: 0.125, batch_size: 32, epochs: 6, optimizer: {name: sgd, lr: 0.05}}
"""
CONFIG = f"""{MODELS}
{sized("", "precision: fp32")}
{sized("", "memory_format: contiguous")}
studies:
  mixed:
    datasets: [digits]
    folds: {sized(5, 2)}
    models: {sized("[short, medium, long]", "[short]")}
    strategies: [serial, ddp]
    workers: [2]
"""
RUNS = sized(30, 4)

if __name__ == "__main__":
    available = cores.allowed()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(CONFIG)
        command = [*SNAKEMAKE, "-s", ROOT / "workflow" / "Snakefile", "-q", "all"]
        command += ["--cores", str(available), "--configfile", config]
        began = time.time()
        with (Path(folder) / "log").open("w") as log:
            subprocess.run(command, cwd=folder, check=True, stdout=log, stderr=log)
        runs = [run_files.metrics(run) for run in run_files.below(Path(folder, "results/config"))]
    assert len(runs) == RUNS
    makespan = max(run["ended"] for run in runs) - began
    first = min(run["started"] for run in runs)
    area = sum(
        (run["ended"] - run["started"])
        * run["settings"]["workers"]
        * run["settings"]["threads_per_worker"]
        for run in runs
    )
    report(
        "packing",
        [
            (f"{RUNS} runs on {available} cores, from the call of snakemake", "s", [makespan]),
            ("from the start of the first run", "s", [makespan - (first - began)]),
            ("lower bound: core-seconds / cores", "s", [area / available]),
            ("makespan / lower bound", "x", [makespan / (area / available)]),
            (
                "without snakemake's own start and data",
                "x",
                [(makespan - first + began) / (area / available)],
            ),
        ],
    )
