"""200 runs of a second in an allocation of two nodes, and in a call on this machine with as many
cores: from the start of the first run to the end of the last.

On a real SLURM that is brought up here, as root. The runs sleep: what is compared is how soon one
follows another.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import ROOT, SNAKEMAKE, ratios, report, sized

sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests" / "slurm"))

import conftest
import pandas as pd
from slurm_lab import Allocation, cluster, slow_model

from allcores_study.analysis import tidy

SEEDS = sized(100, 2)  # of two folds
STUDY = {"models": ["mlp"], "strategies": ["serial"], "seeds": list(range(SEEDS))}
SECONDS = 1.0 / 8  # of a step, of which a run has 8


def makespan(project):
    return tidy.makespan(pd.read_csv(project.results / "studies" / "first" / "runs.csv"))


def in_allocation(folder):
    with cluster(NODES="2", CPUS="1") as slurm:
        model = slow_model(folder, SECONDS, epochs=1)
        allocation = Allocation(slurm, folder, model=model, **STUDY)
        while allocation.state() in ("PENDING", "RUNNING", "COMPLETING"):
            time.sleep(2)
        assert allocation.state() == "COMPLETED", allocation.log.read_text()
    return allocation.project


def here(folder, config):
    folder.mkdir()
    slow_model(folder, SECONDS, epochs=1)
    shutil.copy(config, folder / "mine.yaml")
    command = [
        *SNAKEMAKE,
        "-s",
        ROOT / "workflow" / "Snakefile",
        "--configfile",
        "mine.yaml",
        "--cores",
        "2",
    ]
    command += ["--workflow-profile", ROOT / "workflow" / "profiles" / "default", "--quiet", "all"]
    subprocess.run(list(map(str, command)), cwd=folder, check=True, capture_output=True)
    return folder / "results" / "mine" / "studies" / "first" / "runs.csv"


if __name__ == "__main__":
    conftest.start_warm_processes()
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        place.chmod(0o755)
        project = in_allocation(place / "there")
        there = [makespan(project)]
        local = [tidy.makespan(pd.read_csv(here(place / "here", project.config)))]
    report(
        "allocation",
        [
            (f"{2 * SEEDS} runs of 1 s, allocation of 2 nodes x 1 core", "s", there),
            (f"{2 * SEEDS} runs of 1 s, here on 2 cores", "s", local),
            ("  allocation / here", "x", ratios(there, local)),
        ],
    )
