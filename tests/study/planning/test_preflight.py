"""What does not fit together is told before anything is trained."""

import subprocess
from functools import partial

import pytest
import yaml
from conftest import ENVIRONMENT, MOBILENET, RUN, program, train_program, usual, vary
from project import copy

from allcores_study.config import component, grid, settings, sweeps
from allcores_study.config.run import Entry, digest
from allcores_study.planning import preflight, trials
from allcores_study.planning.trials import UnfitPartError

# A model that fits, except for what it holds besides and what it returns.
NET = """
class Net(nn.Linear):
    def __init__(self, classes):
        super().__init__(64, classes)
        BESIDES

    def forward(self, x):
        scores = super().forward(x.flatten(1))
        return SCORES
"""


def net(besides="pass", scores="scores"):
    return NET.replace("BESIDES", besides).replace("SCORES", scores)


# Each file of a package of the user's; "from torch import nn" stands above.
MODEL_SOURCES = {
    "plain": net(),
    "inherits": "from mine.plain import Net as Base\n\nclass Net(Base):\n    pass\n",
    "made": "from mine.plain import Net as Base\n\nNet = Base\n",
    "vision": "import torchvision.models.resnet\nfrom mine.plain import Net\n",
    "compiler": """
import torch._dynamo
from mine.plain import Net

torch._dynamo.config.suppress_errors = True
""",
    "starred": "from mine.plain import *\n",
    "conditional": "if True:\n    import mine.plain\n\n    class Net(mine.plain.Net): ...\n",
}


@pytest.fixture
def mine(tmp_path):
    """A namespace package and an ordinary one that takes its model from a module of it."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, text in MODEL_SOURCES.items():
        (folder / f"{name}.py").write_text(f"from torch import nn\n{text}")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("from mine.inherits import Net\n")
    return tmp_path


def try_out(folder, path):
    """What train.py says to a model of one's own on 1 x 8 x 8 images; its exit status."""
    of_dataset = {"size": 8, "channels": 1, "count": 60, "classes": 3, "test": 0}
    adam = {"name": "adam", "lr": 0.001}
    entry = {"import": path, "batch_size": 64, "epochs": 1, "optimizer": adam}
    config = {"models": {"mine": entry}, "datasets": {"tiny": {"name": "fake"} | of_dataset}}
    config |= {"precision": "fp32", "memory_format": "contiguous"}
    (folder / "one.yaml").write_text(yaml.safe_dump(config))
    flags = ["--config=one.yaml", "--model=mine", "--dataset=tiny"]
    command = [*train_program(), *flags]
    run = subprocess.run(command, cwd=folder, env=ENVIRONMENT, text=True, capture_output=True)
    assert "Traceback" not in run.stderr, run.stderr
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize("path", [*(f"mine.{name}:Net" for name in MODEL_SOURCES), "package:Net"])
def test_any_module_that_can_be_imported_can_be_trained(mine, path):
    status, said = try_out(mine, path)
    assert status == 0, said


# What is wrong with a model -> its file, and what is said of it.
WRONG = {
    "wide": (net(scores="x[..., :3]"), "is (2, 1, 8, 3) in training; expected (2, 3)"),
    "evaluated": (
        net(scores="scores if self.training else x.flatten(1)"),
        "output for 2 samples is (2, 64) in evaluation; expected (2, 3)",
    ),
    "complex": (
        net(scores="scores * 1j"),
        "the model's output is torch.complex64 in training; expected torch.float32",
    ),
    "two": (net(scores="(x, x)"), "output for 2 samples is tuple"),
    "dictionary": (net(scores="{'out': scores}"), "set an option such as `aux_logits: "),
    "thousand": (net(scores="scores.repeat(1, 9)"), "take a key such as `num_classes: 3`"),
    "embedding": (
        "class Net(nn.Embedding):\n    def __init__(self):\n        super().__init__(9, 3)\n",
        "give the dataset `inputs: tokens`",
    ),
    "mistaken": (net(scores="self.boddy"), "has no attribute 'boddy' (FOLDER/mine.py, line 10)"),
    "needs": (net().replace("self, classes", "self, size, classes"), "lacks size"),
    "empty": (
        """
class Net(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :3]
""",
        "the model has no parameters to train",
    ),
    "number": ("def Net():\n    return 3\n", "is not a torch.nn.Module but int"),
    "raises": ("def Net():\n    raise KeyError('my own')\n", "KeyError: 'my own'"),
    "exits": (
        "import os\n\ndef Net():\n    os._exit(3)\n",
        "the process of its smoke test ended with status 3",
    ),
    "broken": ("def Net(:\n", "invalid syntax"),
    "missing": ("import no_such_package\n\nNet = nn.Linear\n", "No module named 'no_such_package'"),
    "other": (
        "class Nets(nn.Linear):\n    pass\n",
        "defines no Net; known: nn, Nets (did you mean Nets?)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_model_that_does_not_fit_is_told_in_a_line(tmp_path, name):
    text, line = WRONG[name]
    (tmp_path / "mine.py").write_text(f"from torch import nn\n{text}")
    status, said = try_out(tmp_path, "mine:Net")
    assert status == 1
    assert line.replace("FOLDER", str(tmp_path)) in said
    assert not list(tmp_path.rglob("metrics.json"))


def test_before_a_campaign_each_model_is_tried_out_once(tmp_path):
    project = copy(tmp_path)
    flat = "from torch import nn\n\ndef Net():\n    return nn.Linear(8, 9)\n"
    (tmp_path / "mine.py").write_text(flat)

    def change(config):
        config["models"]["own"] = config["models"]["mlp"] | {"import": "mine:Net"}
        del config["models"]["own"]["hidden"]
        config["models"]["lenet"]["optimizer"]["weight_decay"] = -1
        config["studies"]["first"]["models"].append("own")

    project.configure(change)
    output = project.call(expect=1)
    assert "The config cannot be run:" in output
    lines = project.config.read_text().splitlines()
    model_line = 1 + lines.index("  own:")
    decay = 1 + lines.index("    optimizer:", lines.index("  lenet:"))
    assert (
        f"mine.yaml:{model_line}: models.own: the model's output for 2 samples is (2, 3, 8, 9)"
        in output
    )
    assert f"mine.yaml:{decay}: models.lenet.optimizer: Invalid weight_decay value: -1" in output
    assert "Traceback" not in output
    assert not list(tmp_path.rglob("metrics.json"))


@pytest.mark.parametrize(
    ("part", "entry", "place", "line"),
    [
        ("optimizer", ("SGD", {"nesterov": True}), "models", "Nesterov momentum requires a mom"),
        ("optimizer", ("SGD", {"momentum": -1.0}), "models", "Invalid momentum value"),
        ("optimizer", ("Adam", {"betas": [2, 3]}), "models", "Invalid beta parameter"),
        ("loss", ("CrossEntropyLoss", {"label_smoothing": 2.0}), "models", "label_smoothing"),
        ("loss", ("NLLLoss", {}), "models", "use cross_entropy for scores"),
        ("schedule", ("onecycle", {"warm_up": 3}), "schedules", "warm_up 3 of"),
        ("schedule", ("cosine", {"floor": 2.0}), "schedules", "floor 2 is not below"),
    ],
)
def test_options_that_do_not_fit_are_told_at_their_place(part, entry, place, line):
    name, options = entry
    options |= {"lr": 0.1} if part == "optimizer" else {}
    with pytest.raises(UnfitPartError) as error:
        trials.tried_out(vary(**{part: Entry("mine", name, options)}), (3, 8, 8), usual(3))
    assert error.value.place[:2] == (place, "mine" if place == "schedules" else RUN.model.label)
    assert line in error.value.problem
    assert "\n" not in error.value.problem


def test_batch_norm_needs_more_than_a_sample():
    run = vary(batch_size=2, workers=2, model=MOBILENET)
    with pytest.raises(UnfitPartError, match=r"leaves 2 worker\(s\) one sample each"):
        trials.tried_out(run, (3, 8, 8), usual(3))
    assert trials.tried_out(RUN, (3, 8, 8), usual(3))["weight_bytes"] > 0


UNUSED = net(besides="self.unused = nn.Linear(3, 3)")
MIXED = net(besides="self.late = nn.Linear(3, 3).double()")
SPARSE = """
class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.bag = nn.EmbeddingBag(2, classes, sparse=True)

    def forward(self, x):
        return self.bag((x.flatten(1) > 0).long())
"""
COMPILED = """
def Net(classes):
    return torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(64, classes)))
"""


@pytest.mark.parametrize(
    ("model", "strategy", "options", "problem"),
    [
        (UNUSED, "ddp", {}, "waits for the gradient of every weight, and unused.weight gets none"),
        (UNUSED, "ddp", {"find_unused_parameters": True}, None),
        (UNUSED, "ring", {}, None),
        (MIXED, "serial", {}, None),
        (
            MIXED,
            "ring",
            {},
            "makes one vector of all trainable weights",
        ),
        (
            MIXED,
            "shared_memory",
            {},
            "trainable weights, which are float32 and float64",
        ),
        (SPARSE, "ddp", {}, "exchanges dense gradients, and those of bag are sparse"),
        (SPARSE, "serial", {}, None),
        (net(), "accelerator", {"device": "nothing"}, "cannot compute on the device 'nothing'"),
        (COMPILED, "serial", {}, "is compiled by TorchScript"),
    ],
)
def test_a_strategy_that_cannot_train_a_model_is_told_first(
    mine, monkeypatch, model, strategy, options, problem
):
    name = f"mine_{digest(model)}"
    (mine / f"{name}.py").write_text(f"import torch\nfrom torch import nn\n{model}")
    monkeypatch.syspath_prepend(str(mine))
    component.source_of.cache_clear()
    run = vary(
        model=Entry("own", f"{name}:Net", {}),
        optimizer=Entry("SGD", "SGD", {"lr": 0.1}),
        strategy=Entry("label", strategy, options),
    )
    try_out = partial(trials.tried_out, run, (1, 8, 8), usual(3), [run.strategy])
    if problem is None:
        try_out()
        return
    with pytest.raises(UnfitPartError) as error:
        try_out()
    assert problem in error.value.problem
    place = ("models", "own") if "compiled" in problem else ("strategies", "label")
    assert error.value.place == place


def test_a_problem_of_any_length_is_cut():
    with pytest.raises(UnfitPartError) as error, trials._blame("models", "own"):
        raise RuntimeError("x" * 10**6 + " is too much")
    assert len(error.value.problem) < 1100
    assert "[...]" in error.value.problem and "is too much (" in error.value.problem


def test_what_is_installed_is_found_without_importing_it():
    assert component.source_of("torchvision.models.resnet").name == "resnet.py"
    assert component.source_of("no.such.module") is None


def test_a_schedule_needs_room_in_the_shortest_training(tmp_path):
    config = yaml.safe_load("""
models: {net: {name: mlp, batch_size: 512, epochs: 1, optimizer: {name: adam, lr: 0.01}}}
studies: {s: {datasets: [digits], folds: 5, models: [net], schedules: [onecycle]}}
""")

    def findings(config):
        config = sweeps.expanded(settings.with_defaults(config))
        table, known = grid.expand(config), tmp_path / "known"
        return preflight.findings(config, table, [], known, program("check_models"))

    assert "warm_up 0.3 of 3 steps" in findings(config)[0]
    config["models"]["net"]["epochs"] = 9
    assert findings(config) == []
    config["models"]["net"]["epochs"] = 1
    assert "warm_up 0.3 of 3 steps" in findings(config)[0], "though it was known to fit"
    config["studies"]["s"]["schedules"] = ["cosine"]
    config["schedules"] = {"cosine": {"floor": 0.001}}
    assert findings(config) == []
    config["models"]["net"]["optimizer"]["lr"] = [0.01, 0.0001]
    assert "floor 0.001 is not below the learning rate, 0.0001" in findings(config)[0]
