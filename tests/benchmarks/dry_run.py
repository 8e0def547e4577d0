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


if __name__ == "__main__":
    report(
        "dry_run",
        [
            (f"dry run of {runs:,} trainings", "s", [dry_run(runs) for _ in range(sized(3, 1))])
            for runs in sized((1000, 10_000), (40,))
        ],
    )
