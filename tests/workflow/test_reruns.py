"""What trains again when something changes, no more and no less."""

import ast
import copy as copying
import functools
import shutil

import pytest
import yaml
from project import MINIATURE, RUNS

from allcores_study import programs
from allcores_study.config import grid, registry
from allcores_study.records import fingerprint, identity

NONE, HALF, ALL = 0, RUNS // 2, RUNS
STACKING = ("data", "loop", "losses", "networks", "optimizers", "stacks")
# Module of the library, or folder for all others in it -> how many of the miniature study's runs an
# edit of everything that it defines trains again. Half of the runs are lenet's, half are ddp's.
MODULES = {
    "files": NONE,
    "backend": NONE,
    "version": NONE,
    "loop": ALL,
    "programs": NONE,
    "yaml_files": NONE,
    "config": NONE,
    "config/run": ALL,
    "machine": NONE,
    "analysis": NONE,
    "tasks": NONE,
    **dict.fromkeys(("tasks/base", "tasks/classification"), ALL),
    "datasets": NONE,
    "models": NONE,
    **dict.fromkeys(("models/lenet", "models/mlp"), HALF),
    "strategies": NONE,
    "strategies/base": ALL,
    **dict.fromkeys(("strategies/ddp", "strategies/serial"), HALF),
    **dict.fromkeys(("parallel/joining", "parallel/process_group"), HALF),  # of ddp
    # the way from data to results, except for what watches, places or tells
    "data": ALL,
    **dict.fromkeys(("data/preparation",), NONE),
    "parallel": ALL,
    **dict.fromkeys(("parallel/clock", "parallel/reports", "parallel/supervision"), NONE),
    # what only other runs have
    **dict.fromkeys(("parallel/flat", "strategies/_staleness"), NONE),
    "training": ALL,
    "training/estimators": NONE,  # of estimators alone
    **dict.fromkeys((f"training/{name}" for name in ("checkpoints", "progress")), NONE),
    "training/run_request": NONE,
    "training/choosing": NONE,  # see test_sweeps.py
    "stacking": NONE,  # see below
    "planning": NONE,
    "campaign": NONE,
    "watching": NONE,
    "records": NONE,
    "serving": NONE,
    "interactive": NONE,
}
CONFIG = yaml.safe_load(MINIATURE)


def modules():
    packages = registry.ENGINE, registry.LIBRARY
    files = {f.relative_to(package) for package in packages for f in package.rglob("*.py")}
    return sorted(file.with_suffix("").as_posix() for file in files)


def identities(config=CONFIG):
    """path -> what Snakemake compares of a run, beside its data."""
    return {path: identity.before_data(run) for path, run in grid.expand(config).runs.items()}


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A copy of both packages that a test may edit; call it to read the files again: it gives their
    folder."""
    folder = tmp_path / "scripts"
    for name in ("ENGINE", "LIBRARY"):
        package, ignored = getattr(registry, name), shutil.ignore_patterns("__pycache__")
        shutil.copytree(package, folder / package.name, ignore=ignored)
        monkeypatch.setattr(registry, name, folder / package.name)
    monkeypatch.setattr(programs, "PROGRAMS", folder)

    def forget():
        for cached in (
            fingerprint._file,
            fingerprint._reached,
            fingerprint._cache,
        ):
            cached.cache_clear()
        return folder

    yield forget
    monkeypatch.undo()
    forget()


@functools.cache
def reached():
    """For each run of the miniature study the modules that its fingerprint covers."""
    covered_modules = []
    for run in grid.expand(CONFIG).runs.values():
        covered = fingerprint.files_of_run(run)
        covered_modules.append({module.partition(".")[2].replace(".", "/") for module in covered})
    return covered_modules


@pytest.mark.parametrize("module", modules())
def test_an_edit_of_a_module_trains_what_can_reach_it(module):
    expected = MODULES.get(module, MODULES.get(module.split("/")[0]))
    if module.endswith("__init__"):
        expected = NONE  # nothing is defined there
    assert expected is not None, f"say in MODULES what an edit of {module} trains again"
    assert sum(module in of_run for of_run in reached()) == expected


class Edit(ast.NodeTransformer):
    """Adds a statement to every function, and an attribute to every class."""

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        node.body.append(ast.parse("edited = 1").body[0])
        return node

    visit_ClassDef = visit_FunctionDef  # noqa: N815


@pytest.mark.parametrize("module", ["data/folds", "models/mlp", "parallel/flat", "config/run"])
def test_an_edit_changes_the_identity_of_runs_that_reach_it(library, module):
    (file,) = library().glob(f"*/{module}.py")
    before = identities()
    file.write_text(ast.unparse(Edit().visit(ast.parse(file.read_text()))))
    library()
    after = identities()
    expected = sum(module in of_run for of_run in reached())
    assert sum(after[path] != before[path] for path in before) == expected


def test_an_edit_of_compiled_code_changes_the_identity_of_all_runs(library):
    file = library() / "allcores/parallel/exchange.c"
    before = identities()
    file.write_text(file.read_text().replace("TILE = 1024", "TILE = 512"))
    library()
    after = identities()
    assert all(after[path] != before[path] for path in before)


def test_an_edit_of_what_stacks_trains_runs_that_may_be_stacked():
    config = copying.deepcopy(CONFIG)
    config["studies"]["first"] |= {"strategies": ["serial"], "models": ["mlp"]}
    for run in grid.expand(config).runs.values():
        covered = fingerprint.files_of_run(run)
        assert {f"allcores_study.stacking.{name}" for name in STACKING} <= covered.keys()
    config["studies"]["first"] |= {"exclusive": True}
    for run in grid.expand(config).runs.values():
        assert "allcores_study.stacking.networks" not in fingerprint.files_of_run(run)


def test_no_module_is_listed_that_is_gone():
    folders = {module.split("/")[0] for module in modules()}
    assert set(MODULES) <= {*modules(), *folders}


@pytest.mark.parametrize(
    ("module", "addition", "trains"),
    [
        ("training/schedules", "def mine(optimizer, total_steps):\n    return 1\n", ALL),
        ("models/lenet", "MINE = 1\n", HALF),
        ("training/loop", "# a comment\n", NONE),
        ("training/loop", '"""A text."""\n', NONE),
        ("training/loop", "torch.set_flush_denormal(True)\n", ALL),  # whoever imports it does that
        ("__init__", "import torch\n\ntorch.use_deterministic_algorithms(True)\n", ALL),
        ("strategies/__init__", "X = 1\n", ALL),
        ("models/vgg", "def vgg99():\n    return 1\n", NONE),
    ],
)
def test_what_is_added_counts_if_it_is_run(library, module, addition, trains):
    before = identities()
    file, *_ = sorted(library().glob(f"*/{module}.py"))
    file.write_text(file.read_text() + "\n\n" + addition)
    library()
    assert sum(identities()[path] != before[path] for path in before) == trains


def test_a_copy_of_the_library_has_a_cache_of_its_own(monkeypatch):
    """Each run reads it: one for all copies took every run half a second after forty clones."""
    names = set()
    for library in (registry.LIBRARY, registry.LIBRARY.parent / "another"):
        monkeypatch.setattr(fingerprint.registry, "LIBRARY", library)
        fingerprint._cache.cache_clear()
        names.add(fingerprint._cache().file)
    fingerprint._cache.cache_clear()
    assert len(names) == 2


def test_the_version_of_torch_counts(monkeypatch):
    before = identities()
    monkeypatch.setattr(identity, "version_of_torch", lambda: "2.99")
    assert all(identities()[path] != before[path] for path in before)


def put(*keys):
    """A change of a config: all but the last are the way, the last is the value."""

    def change(config):
        *parents, key, value = keys
        for parent in parents:
            config = config.setdefault(parent, {})
        config[key] = value

    return change


STUDY = ("studies", "first")
LENET = ("models", "lenet")


@pytest.mark.parametrize(
    ("change", "trains"),
    [
        (put(*LENET, "batch_size", 15), HALF),
        (put(*LENET, "epochs", 3), HALF),
        (put(*LENET, "width", 0.25), HALF),
        (put(*LENET, "optimizer", "lr", 0.1), HALF),
        (put(*LENET, "optimizer", "betas", [0.8, 0.9]), HALF),
        (put(*LENET, "optimizer", "name", "adamw"), HALF),
        (put(*LENET, "loss", {"name": "mse"}), HALF),
        (put(*LENET, "loss", {"name": "cross_entropy"}), NONE),  # the default
        (put(*LENET, "augmentation", {"crop": 1}), HALF),
        (put(*LENET, "augmentation", {"flip": True}), HALF),
        (put(*LENET, "precision", "bf16"), HALF),
        (put(*LENET, "memory_format", "channels_last"), HALF),
        (put("datasets", "tiny", "noise", 2.0), ALL),
        (put("datasets", "unused", {"name": "digits"}), NONE),
        (put("schedules", "cosine", "floor", 0.001), ALL),
        (put("strategies", "ddp", {"bucket_mb": 1}), HALF),
        (put("pinning", False), NONE),
        (put("timeout", 5), NONE),
        (put("downloads", "elsewhere"), NONE),
        (put(*STUDY, "baseline", "ddp"), NONE),
        (put(*STUDY, "curves", True), NONE),  # see below
        (put(*STUDY, "exclusive", True), NONE),  # see below
        (put(*STUDY, "oversubscribe", True), NONE),
        (put(*STUDY, "target_accuracy", 0.5), NONE),
        (put(*STUDY, "references", []), NONE),
        (put(*STUDY, "threads_per_worker", [2]), ALL),
        (put(*STUDY, "train_sizes", [20]), ALL),
        (put(*STUDY, "seeds", [1]), ALL),
        (put(*STUDY, "folds", 3), 12),
        (put(*STUDY, "workers", [3]), HALF),
    ],
)
def test_each_key_of_a_config(change, trains):
    config = copying.deepcopy(CONFIG)
    change(config)
    before, after = identities(), identities(config)
    assert sum(after[path] != before.get(path) for path in after) == trains
