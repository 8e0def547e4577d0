"""Two calls at once in one project: each run is trained once, and both calls end well."""

import threading

import patience
import pytest
import yaml
from project import Project, copy

from allcores_study.config import grid
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.watching import journal, status
from allcores_study.watching.ledger import Ledger

CONFIG = """
models:
  slow: {import: "slow:Net", batch_size: 8, epochs: 2, optimizer: {name: sgd, lr: 0.1}}
datasets:
  tiny: {name: fake, count: 40, test: 0, size: 8, classes: 2}
studies:
  one: {datasets: [tiny], folds: 2, models: [slow]}
precision: fp32
memory_format: contiguous
runs_per_job: PER_JOB
"""
SLOW = """
import time
from pathlib import Path

from torch import nn


class Net(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.LazyLinear(classes))

    def forward(self, images):
        while Path("results/mine/checkpoints").exists() and not Path("go").exists():
            time.sleep(0.05)  # in trainings, not in its smoke test
        return super().forward(images)
"""


@pytest.mark.parametrize("per_job", [4, 1])
def test_the_second_says_so_and_ends(tmp_path, per_job):
    project = copy(tmp_path)
    project.config.write_text(CONFIG.replace("PER_JOB", str(per_job)))
    (tmp_path / "slow.py").write_text(SLOW)
    other = Project(tmp_path)
    other.config = tmp_path / "other.yaml"
    other.config.write_text(project.config.read_text().replace('import: "slow:Net"', "name: mlp"))
    with project.snakemake() as first:
        patience.wait_for(lambda: list(project.results.glob("checkpoints/**/fold*")))
        other.call("--until", "prepare_dataset")  # of another config
        said = project.call(expect=1)
        assert "results/mine: " in said and f"process {first.pid}" in said
        assert "Traceback" not in said
        assert project.planned()["report_one"] == 1, "a dry run changes nothing, so it may look"
        (tmp_path / "go").touch()
        said = patience.ended(first, 300)
        assert first.returncode == 0, said
    assert project.planned() == {}


def test_who_watches_waits_for_a_call_that_tries_out_its_models(tmp_path, monkeypatch):
    """It has locked the folder, and has no journal yet."""
    monkeypatch.setattr(status, "PATIENCE", 0)
    config = yaml.safe_load(
        CONFIG.replace("PER_JOB", "1").replace('import: "slow:Net"', "name: mlp")
    )
    table, folder = grid.expand(config), ResultsFolder(str(tmp_path))
    of_table = status.Status(Ledger(config, table, folder))
    watching = threading.Thread(target=of_table.watch, daemon=True)
    with journal.lock(folder):
        watching.start()
        watching.join(2)
        assert watching.is_alive()
    watching.join(patience.seconds(10))
    assert not watching.is_alive()
