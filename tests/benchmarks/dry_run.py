"""How long a dry run of many trainings takes."""

import subprocess
import tempfile
import time
from pathlib import Path

from measure import ROOT, SNAKEMAKE, report, sized

CONFIG = """
models:
  lenet: {{batch_size: 32, epochs: 1, optimizer: {{name: adam, lr: 0.001}}}}
studies:
  many:
    datasets: [digits]
    folds: 10
    models: [lenet]
    schedules: [constant, cosine]
    strategies: [ddp]
    workers: [1, 2]
    seeds: {seeds}
"""


def dry_run(runs):
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(CONFIG.format(seeds=list(range(runs // 40))))
        began = time.perf_counter()
        done = subprocess.run(
            [
                *[*SNAKEMAKE, "-n", "-q", "rules", "-s", ROOT / "workflow" / "Snakefile"],
                *["--cores", "2", "--configfile", config],
            ],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
        took = time.perf_counter() - began
        assert f" {runs}\n" in done.stdout + done.stderr
        return took


def dry_run_of_short_runs(runs):
    """The same of short runs, which share jobs, of a model that an earlier call has timed."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        command = [*SNAKEMAKE, "-s", ROOT / "workflow" / "Snakefile", "--configfile", config]
        quiet = {"cwd": folder, "check": True, "capture_output": True, "text": True}
        config.write_text(SHORT.format(seeds=[0]))
        subprocess.run([*command, "--cores", "2", "--until", "prepare_dataset"], **quiet)
        config.write_text(SHORT.format(seeds=list(range(runs // 20))))
        began = time.perf_counter()
        said = subprocess.run([*command, "-n", "-q", "rules", "--cores", "2"], **quiet)
        took = time.perf_counter() - began
        assert "train_several" in said.stdout + said.stderr
        return took


SHORT = """
models:
  mlp: {{hidden: [16], batch_size: 32, epochs: 5, optimizer: {{name: adam, lr: 0.001}}}}
studies:
  many:
    datasets: [breast_cancer]
    folds: 10
    models: [mlp]
    schedules: [constant, cosine]
    seeds: {seeds}
"""

if __name__ == "__main__":
    repeats, sizes = sized(3, 1), sized((1000, 10_000), (40,))
    rows = [
        (f"dry run of {runs:,} trainings", "s", [dry_run(runs) for _ in range(repeats)])
        for runs in sizes
    ]
    rows += [
        (
            f"dry run of {runs:,} short ones, which share jobs",
            "s",
            [dry_run_of_short_runs(runs) for _ in range(repeats)],
        )
        for runs in sizes
    ]
    report("dry_run", rows)
