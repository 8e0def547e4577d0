"""A copy of the project with a study of its own, called as its users call it."""

import csv
import fcntl
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import patience
import yaml
from conftest import ENVIRONMENT, OF_CALLS, OF_PROGRAMS, ROOT, place_of, warm

from allcores_study.campaign import warm_start

MINIATURE = """
models:
  lenet: {width: 0.5, batch_size: 16, epochs: 2, optimizer: {name: adam, lr: 0.003}}
  mlp: {hidden: [16], batch_size: 16, epochs: 2, optimizer: {name: sgd, lr: 0.05}}
datasets:
  tiny: {name: fake, count: 60, test: 0, size: 8, classes: 3}
schedules:
  cosine: {}
strategies:
  serial: {}
studies:
  first:
    datasets: [tiny]
    folds: 2
    models: [lenet, mlp]
    schedules: [cosine]
    strategies: [serial, ddp]
    workers: [2]
precision: fp32
memory_format: contiguous
runs_per_job: 1
"""
# For each model serial and ddp, two folds.
RUNS = 8
COPIED = ("Snakefile", "config", "workflow", "scripts", "profiles", "environment.yml")
# What a project has of its own only once a test edits it.
LINKED = ("scripts",)

# What is there for a call of snakemake, and may be gone while a project is copied.
GOING = shutil.ignore_patterns("warm_process_*")
WARM = ROOT / "tests" / "warm"


class Project:
    """A copy of the project with a config of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.config = folder / "mine.yaml"
        self.results = folder / "results" / "mine"

    def copied(self, folder):
        """A copy in another place, which a test may change."""
        shutil.copytree(self.folder, folder, symlinks=True, ignore=GOING)
        return Project(folder)

    def snakemake(self, *arguments, cores="2", cwd=None, forked=False, **popen):
        """Its process. A forked one starts sooner, and its signals pass through another."""
        command = (
            [*warm(OF_CALLS, WARM / "call.py")] if forked else [sys.executable, "-m", "snakemake"]
        )
        environment = ENVIRONMENT
        if forked and (self.folder / "scripts").is_symlink():
            environment = ENVIRONMENT | {warm_start.THERE: str(place_of(OF_PROGRAMS))}
        command += ["-s", self.folder / "workflow" / "Snakefile"]
        command += ["--configfile", self.config, *(["--cores", cores] if cores else []), *arguments]
        return subprocess.Popen(
            list(map(str, command)),
            cwd=cwd or self.folder,
            env=environment,
            text=True,
            stderr=subprocess.STDOUT,
            **{"stdout": subprocess.PIPE} | popen,
        )

    def call(self, *arguments, expect=0, **options):
        process = self.snakemake(*arguments, forked=True, **options)
        output = patience.ended(process, 300)
        assert process.returncode == expect, output
        return output

    def planned(self, *arguments, **options):
        """Rule -> how many jobs a dry run plans."""
        output = self.call("-n", *arguments, **options)
        stats = output.rpartition("Job stats:")[2]
        return {name: int(n) for name, n in re.findall(r"^(\w+) +(\d+)$", stats, re.MULTILINE)}

    def trains(self, *arguments, **options):
        return self.planned(*arguments, **options).get("train", 0)

    def edit(self, path, old, new):
        file = self.folder / path
        top = self.folder / Path(path).parts[0]
        if top.is_symlink():
            source = top.resolve()
            top.unlink()
            shutil.copytree(source, top, ignore=shutil.ignore_patterns("__pycache__"))
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def configure(self, change):
        config = yaml.safe_load(self.config.read_text())
        change(config)
        self.config.write_text(yaml.safe_dump(config, sort_keys=False))


def copy(folder, linked=LINKED):
    """A Project in a folder.

    Args:
        linked: what of it is a link, which nobody may write through; Project.edit() does not.
    """
    folder.mkdir(exist_ok=True)
    for name in COPIED:
        source = ROOT / name
        if name in linked:
            (folder / name).symlink_to(source)
        elif source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, ignore=ignored, symlinks=True)
        else:
            shutil.copy2(source, folder / name)
    project = Project(folder)
    project.config.write_text(MINIATURE)
    return project


@functools.cache
def miniature():
    """The miniature study, finished: made once for all tests, which change copies of it.

    What the call said is in the file `said` of its folder.
    """
    folder = Path(os.environ["ALLCORES_TESTS"], "miniature")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another of pytest-xdist's workers may be at it
        if not (folder / "said").exists():
            shutil.rmtree(folder, ignore_errors=True)
            project = copy(folder)
            said = project.call("--report", "results/report.html", "--report-after-run")
            (folder / "said").write_text(said)
    return Project(folder)


def unexplained_columns(results):
    """ "FILE: COLUMN" for the columns in the CSVs of studies that docs/results.md does not name."""
    marked = re.findall(r"\*([a-z0-9 ]+)\*|`(\w+)`", (ROOT / "docs" / "results.md").read_text())
    names = {(in_words or name).replace(" ", "_") for in_words, name in marked}
    prefixes = ["machine_", "swept_", "class ", "group ", "one_by_one_", "packed_"]
    named_by_prefix = re.compile("|".join([*prefixes, "predicted_", "measured_"]))
    return sorted(
        f"{file.name}: {column}"
        for file in results.glob("studies/*/*.csv")
        for column in csv.DictReader(file.read_text().splitlines()).fieldnames
        if column not in names and not named_by_prefix.match(column)
    )
