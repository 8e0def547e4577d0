"""The notebook of examples/patients, executed as in Jupyter."""

import json
import shutil
import subprocess
import sys

import pytest
from conftest import ENVIRONMENT, ROOT

EXAMPLE = ROOT / "examples" / "patients"


@pytest.mark.long
def test_the_notebook_shows_answer_figure_table_and_predictions(tmp_path):
    pytest.importorskip("nbconvert")
    for name in ("patients.csv", "study.ipynb"):
        shutil.copy(EXAMPLE / name, tmp_path)
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace"]
    # As after `make`, which puts scripts/ on the path.
    environment = ENVIRONMENT | {"PYTHONPATH": str(ROOT / "scripts")}
    run = subprocess.run(
        [*command, "study.ipynb"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    cells = json.loads((tmp_path / "study.ipynb").read_text())["cells"]
    shown = [_shown(cell) for cell in cells if cell["cell_type"] == "code"]
    assert "scored best: ROC AUC" in shown[0] and "<svg" in shown[0] and "<table" in shown[0]
    assert "net reached accuracy" in shown[2]
    assert "yes" in shown[3] and "<table" in shown[3]


def _shown(cell):
    """The text and HTML that the last line of a cell has shown."""
    parts = [output["data"] for output in cell["outputs"] if "data" in output]
    return "".join("".join(text) for part in parts for text in part.values())
