"""Many short runs on pretended cores: how busy Snakemake keeps them, and how much memory it takes.

A run sleeps and writes what a run leaves; all else is as in any call. So it shows how many cores
could be kept busy with such runs, whatever this machine has. Runs of a second have a job each here,
runs of a tenth share jobs.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import ROOT, SNAKEMAKE, report, sized

sys.path.insert(0, str(ROOT / "tests"))

import psutil
import yaml
from project import copy

from allcores.files import write_json
from allcores.machine import cores
from allcores_study.config import grid, settings
from allcores_study.records.run_files import RUN_FILES

CORES = 48
RUNS, SHARING = sized(2000, 4), sized(20_000, 4)
SECONDS, SHORT = sized(1.0, 0.1), sized(0.1, 0.01)
# In the place of scripts/start.py, which has warm processes run programs.
PRETENDING = """
import json, os, sys, time

path, caller, program, *arguments = sys.argv[1:]
if not program.endswith("train.py"):
    os.execv(sys.executable, [sys.executable, program, *arguments, "--die-with-parent", caller])
mark = arguments[arguments.index("--mark") + 1]
with open(arguments[arguments.index("--job") + 1]) as file:
    runs = json.load(file)["runs"]
began = time.time()
time.sleep(SECONDS * len(runs))
with open("metrics.json") as file:
    metrics = file.read()
for run in runs:
    os.makedirs(run["output"], exist_ok=True)
    for name in RUN_FILES:
        with open(os.path.join(run["output"], name), "w") as file:
            file.write(metrics)
with open(mark, "w") as file:
    file.write(f"{began} {time.time()} {len(runs)}")
"""


def study(runs, is_shared=False):
    lenet = {"batch_size": 32, "epochs": 1, "optimizer": {"name": "adam", "lr": 0.001}}
    many = {"datasets": ["tiny"], "folds": "test", "models": ["lenet"], "strategies": ["serial"]}
    return {
        "models": {"lenet": lenet},
        "datasets": {"tiny": {"name": "fake", "count": 60, "test": 20, "size": 32}},
        "studies": {"many": many | {"schedules": ["constant"], "seeds": list(range(runs))}},
        "precision": "fp32",
        "memory_format": "contiguous",
    } | (sized({}, {"runs_per_job": 2}) if is_shared else {"runs_per_job": 1})


def pretend(folder, config, seconds=SECONDS):
    """A project whose runs sleep."""
    project = copy(folder)
    project.config.write_text(yaml.safe_dump(config))
    start = (ROOT / "scripts" / "start.py").read_text()
    stand_in = PRETENDING.replace("SECONDS", str(seconds)).replace("RUN_FILES", repr(RUN_FILES))
    project.edit("scripts/start.py", start, stand_in)
    run = next(iter(grid.expand(settings.with_defaults(config)).runs.values()))
    metrics = {
        "settings": json.loads(run.to_json()),
        "machine": {"processor": cores.processor()},
        "diverged": None,
        "sessions": [{"started": 0.0, "ended": SECONDS}],
        "peak_memory_bytes": 4 * 10**8,
        "files": {},
    }
    write_json(folder / "metrics.json", metrics)
    return project


def call(runs, is_shared=False):
    """(seconds from the first run's start to the last one's end, snakemake's peak bytes, jobs)"""
    with tempfile.TemporaryDirectory() as folder:
        project = pretend(Path(folder), study(runs, is_shared), SHORT if is_shared else SECONDS)
        command = [*SNAKEMAKE, "-s", "workflow/Snakefile", "--configfile", project.config]
        command += [
            "--until",
            "train",
            "train_several",
            "--cores",
            CORES,
            "--resources",
            f"mem_mb={10**9}",
        ]
        with Path(folder, "log").open("w") as log:
            process = subprocess.Popen(list(map(str, command)), cwd=folder, stdout=log, stderr=log)
            most = 0
            while process.poll() is None:
                time.sleep(1)
                try:
                    most = max(most, psutil.Process(process.pid).memory_info().rss)
                except psutil.NoSuchProcess:
                    break
        assert process.wait() == 0, Path(folder, "log").read_text()[-2000:]
        if is_shared:
            marks = [file.read_text().split() for file in project.results.glob("calls/*/*.done")]
            began, ended, counts = zip(*(map(float, mark) for mark in marks), strict=True)
            assert sum(counts) == runs
            return max(ended) - min(began), most, len(marks)
        ends = [file.stat().st_mtime for file in (project.results / "runs").rglob("metrics.json")]
        assert len(ends) == runs
        return max(ends) - min(ends) + SECONDS, most, runs


if __name__ == "__main__":
    seconds, memory, _ = call(RUNS)
    rows = [
        (f"{RUNS:,} runs of {SECONDS} s on {CORES} pretended cores", "s", [seconds]),
        ("  cores busy", "%", [100 * RUNS * SECONDS / CORES / seconds]),
        ("  memory of snakemake", "MB", [memory / 1e6]),
    ]
    seconds, memory, jobs = call(SHARING, is_shared=True)
    busy = 100 * SHARING * SHORT / CORES / seconds
    rows += [
        (f"{SHARING:,} runs of {SHORT} s, which share jobs, on {CORES} cores", "s", [seconds]),
        ("  cores busy", "%", [busy]),
        ("  jobs", "jobs", [jobs]),
        ("  memory of snakemake", "MB", [memory / 1e6]),
    ]
    report("many_runs", rows)
