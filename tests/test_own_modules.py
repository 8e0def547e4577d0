"""Which modules of the user's the runs of a model depend on, found without importing any."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT

from allcores.study import component, fingerprint

MODEL_SOURCES = {
    "nets/__init__.py": "from nets.parts import SCALE\nfrom .net import Net\n",
    "nets/parts.py": "SCALE = 1.0\n",
    "nets/net.py": (
        "from torch import nn\nfrom . import parts\nimport helpers\n\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, classes):\n"
        "        super().__init__()\n"
        "        self.body = nn.LazyLinear(classes)\n\n"
        "    def forward(self, x):\n"
        "        return helpers.scaled(self.body(x.flatten(1)), parts.SCALE)\n"
    ),
    "nets/unused.py": "X = 1\n",
    "elsewhere/helpers.py": "import losses\n\n\ndef scaled(x, by):\n    return losses.ONE * x\n",
    "elsewhere/losses.py": "ONE = 1\n",
    "elsewhere/more/utils.py": "TWO = 1\n",
}


@pytest.fixture
def model_fingerprint(tmp_path, monkeypatch):
    """A model of the user's whose modules lie in two folders."""
    for name, text in MODEL_SOURCES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), str(tmp_path / "elsewhere")])

    def of_model():
        for cached in (
            component.source_of,
            component.imported,
            component.parse,
            fingerprint._of,
        ):
            cached.cache_clear()
        return fingerprint._of((), "nets:Net")

    return of_model


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("nets/__init__.py", True),
        ("nets/parts.py", True),
        ("nets/net.py", True),
        ("elsewhere/helpers.py", True),
        ("elsewhere/losses.py", True),
        ("nets/unused.py", False),
        ("elsewhere/more/utils.py", False),
    ],
)
def test_every_module_counts_that_a_model_of_yours_imports(
    model_fingerprint, tmp_path, name, counts
):
    before = model_fingerprint()
    file = tmp_path / name
    file.write_text(file.read_text() + "# a comment\n")
    assert model_fingerprint() == before
    file.write_text(file.read_text() + "EDITED = 3\n")
    assert (model_fingerprint() != before) == counts
    assert "nets" not in sys.modules, "it is read, not run"


def test_a_fingerprint_does_not_depend_on_the_order_of_a_set(model_fingerprint, tmp_path):
    """Two modules of the same base name are two."""
    file = tmp_path / "nets" / "losses.py"
    file.write_text("THREE = 3\n")
    net = tmp_path / "nets" / "net.py"
    net.write_text("from . import losses\n" + net.read_text())
    code = "import sys; sys.path[:0] = [{!r}, '.', 'elsewhere']\n"
    code += "from allcores.study import fingerprint\nprint(fingerprint._of((), 'nets:Net'))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code.format(str(ROOT / "scripts"))],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            cwd=tmp_path,
            text=True,
            capture_output=True,
            check=True,
        ).stdout
        for seed in range(6)
    }
    assert len(outputs) == 1
    model_fingerprint()
    before = model_fingerprint()
    file.write_text("THREE = 4\n")
    assert model_fingerprint() != before
