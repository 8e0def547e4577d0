"""The same cross-validation from the call to the end: ours, and that of scikit-learn with skorch.

10 runs of LeNet: 5 folds x 2 schedules, digits, 5 epochs, batches of 32, on all cores. Ours ends
with tables, figures and a report; GridSearchCV with the scores. Then the default study: how busy
the cores are between the start of the first run and the end of the last; a second call of it, and
one that makes its reports again.
"""

import shutil
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import pandas as pd
from measure import IS_SMOKE, PYTHON, ROOT, SNAKEMAKE, in_turn, ratios, report, sized

from allcores.machine import cores
from allcores_study.analysis import tidy

REPEATS = sized(3, 1)
CONFIG = f"""
models:
  lenet: {{batch_size: 32, epochs: {sized(5, 1)}, optimizer: {{name: adam, lr: 0.003}}}}
{sized("", "precision: fp32")}
{sized("", "memory_format: contiguous")}
studies:
  lenet:
    datasets: [digits]
    folds: {sized(5, 2)}
    models: [lenet]
    schedules: [cosine, warm_restarts]
"""


def seconds(folder, *arguments):
    """Of a call of snakemake in a folder."""
    command = [*SNAKEMAKE, "-s", ROOT / "workflow" / "Snakefile", "--cores", "all"]
    began = time.perf_counter()
    subprocess.run([*command, *arguments], cwd=folder, check=True, **QUIET)
    return time.perf_counter() - began


def ours(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        return seconds(folder, *arguments)


def default_study():
    """(what, unit, [measured]) of the project's own config."""
    with tempfile.TemporaryDirectory() as folder:
        call = partial(seconds, folder)
        yield "the default study, from the call to the end", "s", [call()]
        yield "  its cores busy with runs while there are any", "%", [100 * is_busy(folder)]
        yield "  called again, when all is there", "s", [call() for _ in range(REPEATS)]
        (studies,) = Path(folder).glob("results/*/studies")
        shutil.rmtree(studies)
        yield "  called again, to make its reports only", "s", [call()]


def is_busy(folder):
    """The share of the cores' time that runs used, from the first start to the last end."""
    tables = [pd.read_csv(file) for file in Path(folder).rglob("studies/*/runs.csv")]
    runs = pd.concat(tables).drop_duplicates(["started", "ended"])
    return runs["cpu_seconds"].sum() / (tidy.makespan(runs) * cores.allowed())


def with_skorch():
    began = time.perf_counter()
    subprocess.run([*PYTHON, Path(__file__).with_name("grid_search.py")], check=True, **QUIET)
    return time.perf_counter() - began


QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(CONFIG)
        ways = {"ours": lambda: ours("--configfile", config), "skorch": with_skorch}
        timings = in_turn(ways, REPEATS)
    of_default = [] if IS_SMOKE else list(default_study())
    report(
        "campaign",
        [
            ("10 runs of LeNet: ours, with tables, figures, report", "s", timings["ours"]),
            ("10 runs of LeNet: GridSearchCV, skorch, joblib", "s", timings["skorch"]),
            ("  ours / skorch", "x", ratios(timings["ours"], timings["skorch"])),
            *of_default,
        ],
    )
