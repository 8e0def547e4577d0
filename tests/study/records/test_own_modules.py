"""Which modules of the user's the runs of a model depend on, read and loaded."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, RUN, stop_after, vary
from project import copy

from allcores_study import programs
from allcores_study.config import component
from allcores_study.config.run import Entry
from allcores_study.records import fingerprint, identity
from allcores_study.records.identity import Record


def test_a_module_of_yours_counts_by_its_file(tmp_path, monkeypatch):
    """What it imports counts once it was loaded."""
    net, helper = tmp_path / "net_by_file.py", tmp_path / "helper_by_file.py"
    net.write_text("import helper_by_file\n")
    helper.write_text("ONE = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def counted():
        for cached in (component.source_of, fingerprint._file, fingerprint._reached):
            cached.cache_clear()
        return fingerprint._reached("net_by_file")

    before = counted()
    net.write_text(net.read_text() + "# a comment\n")
    helper.write_text("ONE = 2\n")
    assert counted() == before
    net.write_text(net.read_text() + "EDITED = 3\n")
    assert counted() != before
    assert "net_by_file" not in sys.modules, "it is read, not run"


def test_a_fingerprint_does_not_depend_on_the_order_of_a_set():
    code = f"import sys; sys.path[:0] = [{str(ROOT / 'scripts')!r}]\n"
    code += "from allcores_study.records import fingerprint as f\nprint(f.of_folds())"
    outputs = {
        subprocess.check_output(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": str(seed)}
        )
        for seed in range(6)
    }
    assert len(outputs) == 1


# Imports that cannot be read: of a computed name, when it is called, from a folder of its own.
LOADING = """
import importlib, sys
from pathlib import Path
from torch import nn

sys.path.insert(0, str(Path(__file__).parent / "parts"))
import plain

scale = importlib.import_module("sca" + "le")


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.LazyLinear(classes)

    def forward(self, x):
        only = importlib.import_module("learn" + "ing").ONE if self.training else 1
        return __import__("sh" + "ift").ONE * self.body(x.flatten(1)) * scale.ONE * only
"""


def write_loading(folder):
    (folder / "parts").mkdir()
    (folder / "loading.py").write_text(LOADING)
    for name in ("learning", "plain", "scale", "shift"):
        (folder / "parts" / f"{name}.py").write_text("ONE = 1\n")


@pytest.fixture
def loading(tmp_path, monkeypatch):
    """A Run of a model that loads modules by names that only it knows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    write_loading(tmp_path)
    component.source_of.cache_clear()
    yield vary(model=Entry("loading", "loading:Net", {}))
    for name in ("loading", "learning", "plain", "scale", "shift"):
        sys.modules.pop(name, None)


def test_a_run_records_the_modules_that_it_has_loaded(loading, laboratory, tmp_path):
    laboratory.trained(loading)
    recorded = Record.read(laboratory.folder / "run" / "metrics.json").loaded
    names = ["loading.py", *(f"parts/{n}.py" for n in ("learning", "plain", "scale", "shift"))]
    assert sorted(name for name in recorded if name in names) == names
    assert fingerprint.changed(recorded) == []
    (tmp_path / "parts" / "shift.py").write_text("ONE = 1  # a comment\n")
    assert fingerprint.changed(recorded) == []
    (tmp_path / "parts" / "shift.py").write_text("ONE = 2\n")
    (tmp_path / "parts" / "scale.py").unlink()
    assert set(fingerprint.changed(recorded)) == {"parts/scale.py", "parts/shift.py"}


def test_a_run_does_not_go_on_with_edited_modules(
    loading, laboratory, tmp_path, monkeypatch, capfd
):
    stop_after(monkeypatch, laboratory, loading, epochs=1)
    (tmp_path / "parts" / "scale.py").write_text("ONE = 2\n")
    laboratory.trained(loading)
    assert "latest.allcores: parts/scale.py was edited" in capfd.readouterr().out


def test_an_edited_module_makes_a_record_outdated(tmp_path):
    (tmp_path / "mine.py").write_text("ONE = 1\n")
    assert Record("x").is_up_to_date("x") and not Record("x").is_up_to_date("y")
    assert not Record("x", loaded={str(tmp_path / "mine.py"): "another"}).is_up_to_date("x")


def test_each_fact_of_the_data_counts_for_what_is_resumed():
    arrays = ("inputs", "targets", "times", "groups")
    files = {f"{name}.npy": "1" for name in arrays}
    content = {"train": 53, "columns": [], "known_tokens": ["a"], "names": ["b"]}
    whole = identity.of_run(RUN, Record("x", files, {}, content), None)
    others = [Record("x", files | {name: "2"}, {}, content) for name in files]
    others += [Record("x", files, {}, content | {key: ["c"]}) for key in content]
    for other in others:
        assert identity.differences(whole, identity.of_run(RUN, other, None)), other
    assert identity.differences(whole, identity.of_run(RUN, others[0], None)) == ["the inputs"]


METRIC = """
import importlib, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "parts"))
import plain


def mine(true, predicted, probabilities):
    return importlib.import_module("wei" + "ght").ONE * (true == predicted).mean()
"""


def test_an_edit_reruns_what_has_loaded_the_module(tmp_path):
    """Runs of a model, or the report with a metric."""
    write_loading(tmp_path)
    project = copy(tmp_path)
    (tmp_path / "measuring.py").write_text(METRIC)
    (tmp_path / "weight.py").write_text("ONE = 1\n")
    model = {"import": "loading:Net", "batch_size": 30, "epochs": 1}
    model["optimizer"] = {"name": "sgd", "lr": 0.1}

    def configure(config):
        config["models"] = {"mine": model}
        one = {"models": ["mine"], "strategies": ["serial"], "metrics": ["measuring:mine"]}
        config["studies"]["first"].update(one)

    project.configure(configure)
    project.call()
    assert project.planned() == {}
    (tmp_path / "weight.py").write_text("ONE = 2\n")
    planned = project.planned()
    assert planned.get("report_first") == 1
    assert "train" not in planned
    (tmp_path / "parts" / "shift.py").write_text("ONE = 2\n")
    assert project.trains() == 2
    project.call()
    assert project.planned() == {}


def test_a_project_in_its_virtual_environment_is_no_installed_package(monkeypatch):
    monkeypatch.setattr(fingerprint.sysconfig, "get_paths", lambda: {"data": "/env"} | PATHS)
    fingerprint._places_of_installed.cache_clear()
    try:
        assert fingerprint.is_installed(Path("/env/lib/python3.11/json/decoder.py"))
        assert not fingerprint.is_installed(Path("/env/project/net.py"))
    finally:
        fingerprint._places_of_installed.cache_clear()


PATHS = dict.fromkeys(("stdlib", "platstdlib"), "/env/lib/python3.11")
PATHS |= dict.fromkeys(("purelib", "platlib"), "/env/lib/python3.11/site-packages")


def test_a_link_counts_by_its_own_name_and_a_neighbour_by_where_it_is(tmp_path, monkeypatch):
    project, library = tmp_path / "project", tmp_path / "library"
    for folder in (project, library):
        folder.mkdir()
    for name, value in (("one", 1), ("two", 2)):
        (library / f"{name}.py").write_text(f"X = {value}\n")
    (project / "linked_part.py").symlink_to(library / "one.py")
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", [*sys.path, str(project), str(library)])
    importlib.import_module("linked_part")
    importlib.import_module("two")
    try:
        recorded = fingerprint.loaded()
    finally:
        del sys.modules["linked_part"], sys.modules["two"]
    assert {"linked_part.py", "../library/two.py"} <= set(recorded)
    (project / "linked_part.py").unlink()
    (project / "linked_part.py").symlink_to(library / "two.py")
    assert "linked_part.py" in fingerprint.changed(recorded)


def test_what_is_imported_for_types_alone_is_no_part_of_the_code(tmp_path):
    plain = "def step(lr: Flat) -> None:\n    lr.go()\n"
    names = ("plain.py", "typed.py", "other.py", "else.py")
    files = [tmp_path / name for name in names]
    files[0].write_text(plain)
    files[1].write_text(f"if TYPE_CHECKING:\n    from flat import Flat\n{plain}")
    files[2].write_text(f"if IS_FAST:\n    from flat import Flat\n{plain}")
    files[3].write_text(f"if TYPE_CHECKING:\n    pass\nelse:\n    from flat import Flat\n{plain}")
    first, typed, other, otherwise = map(fingerprint._parsed, files)
    assert first == typed
    assert otherwise["hash"] != first["hash"] and otherwise["imports"] == [[0, "flat", ["Flat"]]]
    assert other["hash"] != first["hash"] and other["imports"] == [[0, "flat", ["Flat"]]]


def test_for_torch_alone_no_table_of_packages_is_made(monkeypatch):
    """It takes 0.2 s in the process of each run; the version of torch is in its identity."""
    monkeypatch.delattr(importlib.metadata, "packages_distributions")
    assert fingerprint._distributions.__wrapped__(frozenset({"torch"})) == set()


def test_the_hash_of_a_module_is_of_when_it_was_loaded(loading, monkeypatch, tmp_path):
    """Though its file is edited before a run that is forked later asks for it."""
    monkeypatch.setattr(fingerprint, "_when_loaded", {})
    importlib.import_module("loading")
    before = fingerprint.loaded()
    (name,) = [name for name in before if name.endswith("scale.py")]
    (tmp_path / "parts" / "scale.py").write_text("ONE = 2\n")
    assert fingerprint.loaded()[name] == before[name]
    assert fingerprint.changed(before) == [name]


def test_another_version_of_a_package_is_noticed(tmp_path, monkeypatch):
    """Of one that has the network, or that the network's module imports."""
    installed, own = tmp_path / "site-packages", tmp_path / "own"
    for folder in (installed / "layers", installed / "layers-1.2.dist-info", own):
        folder.mkdir(parents=True)
    (installed / "layers" / "__init__.py").touch()
    (installed / "layers-1.2.dist-info" / "METADATA").write_text("Name: layers\nVersion: 1.2\n")
    (installed / "layers-1.2.dist-info" / "top_level.txt").write_text("layers\n")
    (own / "brings.py").write_text("import layers, beside\n\n\ndef net(): ...\n")
    (own / "beside.py").touch()
    monkeypatch.setattr(programs, "brought", set())
    monkeypatch.setattr(sys, "path", [str(own), str(installed), *sys.path])
    for path in ("brings:net", "torchvision.models:resnet18", "allcores_study.models.mlp:mlp"):
        component.imported(path, "models").load()
    try:
        recorded = fingerprint.loaded()
    finally:
        for name in ("layers", "brings", "beside"):
            del sys.modules[name]
    assert recorded["layers"] == "1.2"
    assert {"layers", "torchvision"} <= {name for name in recorded if "/" not in name}
    assert not {"beside", "allcores", "allcores_study", "torch"} & {*recorded}
    assert fingerprint.changed(recorded) == []
    version = installed / "layers-1.2.dist-info" / "METADATA"
    version.write_text("Name: layers\nVersion: 1.3\n")
    fingerprint._version.cache_clear()
    assert fingerprint.changed(recorded) == ["layers"]


def test_a_package_that_was_there_before_the_users_module_counts_too(tmp_path, monkeypatch):
    import pandas

    (tmp_path / "of_pandas.py").write_text("import pandas as pd\n\n\ndef net(): ...\n")
    monkeypatch.setattr(programs, "brought", set())
    monkeypatch.syspath_prepend(tmp_path)
    component.imported("of_pandas:net", "models").load()
    try:
        assert fingerprint.loaded()["pandas"] == pandas.__version__
    finally:
        del sys.modules["of_pandas"]
