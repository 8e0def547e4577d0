"""The examples, each in miniature: what its README calls, in a copy of its folder."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ENVIRONMENT, ROOT
from project import unexplained_columns

pytestmark = pytest.mark.long
EXAMPLES = sorted(file.parent for file in (ROOT / "examples").glob("*/*.yaml"))
# In the place of what takes long.
SMALLER = {
    r"epochs: \d+": "epochs: 1",
    r"folds: \d+": "folds: 2",
    r"seeds: .*\]": "seeds: [0]",
    r"target_accuracy: .*": "target_accuracy: 0.01",
}


def called(folder):
    """The commands in a README that need no cluster."""
    text = (folder / "README.md").read_text()
    return re.findall(r"^    \.\./\.\./\.venv/bin/(\S+) (.*)$", text, re.MULTILINE)


@pytest.fixture
def miniature(tmp_path):
    """A function that copies an example and calls what its README does."""

    def run(example):
        folder = tmp_path / example.name
        ignored = shutil.ignore_patterns(
            "results", ".snakemake", "photos", "images", "masks", "keel", "*.npz"
        )
        shutil.copytree(example, folder, ignore=ignored)
        config = folder / f"{example.name}.yaml"
        for pattern, smaller in SMALLER.items():
            config.write_text(re.sub(pattern, smaller, config.read_text()))
        for name, arguments in called(example):
            words = arguments.replace("../..", str(ROOT)).split()
            program = ["-m", name] if name == "snakemake" else []
            process = subprocess.run(
                [sys.executable, *program, *words],
                cwd=folder,
                env=ENVIRONMENT,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            assert process.returncode == 0, process.stdout
        return folder

    return run


def test_there_are_some():
    assert len(EXAMPLES) == 9


@pytest.mark.parametrize("example", EXAMPLES, ids=[folder.name for folder in EXAMPLES])
def test_an_example_does_what_its_readme_says(miniature, example, monkeypatch):
    folder = miniature(example)
    assert list(folder.glob("results/*/studies/*/report.html"))
    assert [unexplained_columns(results) for results in folder.glob("results/*")] == [[]]
    assert (example / "report.png").exists()
    assert len((example / "README.md").read_text().splitlines()) <= 30
    if example.name == "patients":
        monkeypatch.chdir(folder)
        cells = json.loads((folder / "results.ipynb").read_text())["cells"]
        names = {}
        for cell in cells:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
        assert len(names["predictions"]) == len(names["runs"]) * 120
