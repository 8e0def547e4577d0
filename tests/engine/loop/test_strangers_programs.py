"""Programs and models as strangers write them: what they name, keep, wait for and leave behind."""

import multiprocessing
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from conftest import ENVIRONMENT, ROOT, usual, vary
from test_backend import ranks

import allcores
from allcores.machine import cores
from allcores.parallel import supervision
from allcores_study.config import component, grid
from allcores_study.config.run import Entry
from allcores_study.planning import trials
from allcores_study.tasks.base import named
from allcores_study.training import estimators

NETS = """
import torch
from torch import nn
import train


class Net(nn.Sequential):
    def __init__(this, classes, channels=1):
        super().__init__(nn.Flatten(), nn.Linear(64, classes))


net = Net(3)


class Sure(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), nn.Linear(64, classes), nn.Softmax(dim=1))


class Keeping(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.last, self.state = nn.Linear(64, classes), None

    def forward(self, x):
        x = self.last(x.flatten(1))
        self.state = x if self.state is None else self.state + x
        return self.state
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The working directory of a process of its own, with a module that is called as a program of
    ours."""
    (tmp_path / "train.py").write_text("MINE = True\n")
    (tmp_path / "nets_of_mine.py").write_text(NETS)
    monkeypatch.syspath_prepend(str(tmp_path))
    component.source_of.cache_clear()
    component.imported.cache_clear()
    yield tmp_path
    sys.modules.pop("train", None)
    sys.modules.pop("nets_of_mine", None)


def model(name):
    return vary(model=Entry("own", f"nets_of_mine:{name}", {}))


def answer(name):
    return trials.answer(model(name), (1, 8, 8), usual(3))


SHADOWED = """
import sys
sys.path.insert(0, sys.argv[1])  # as Python does for the program that it is told to run
from allcores_study.config import component
print(component.source_of("train"), component.source_of("plan"))
import train
print(train.MINE)
"""


def test_programs_of_ours_shadow_no_module_of_the_user(place):
    said = subprocess.check_output(
        [sys.executable, "-c", SHADOWED, str(ROOT / "scripts")],
        cwd=place,
        env=ENVIRONMENT | {"PYTHONSAFEPATH": "1"},
        text=True,
    )
    assert said.split() == [str(place / "train.py"), "None", "True"]


FINDER = """
import importlib.machinery, sys
from importlib.util import spec_from_file_location

class Editable:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "installed_by_link":
            return spec_from_file_location(name, sys.argv[1])

sys.meta_path.append(Editable)
from allcores_study.config import component
print(component.imported("installed_by_link:Net").options)
"""


def test_a_package_installed_by_pip_install_e_is_found(tmp_path):
    (tmp_path / "elsewhere.py").write_text("class Net:\n    def __init__(self, width=3): ...\n")
    said = subprocess.check_output(
        [sys.executable, "-c", FINDER, str(tmp_path / "elsewhere.py")],
        cwd=ROOT / "scripts",
        env=ENVIRONMENT,
        text=True,
    )
    assert said.strip() == "{'width': 3}"


def test_the_first_argument_of_a_constructor_has_any_name(place):
    found = component.imported("nets_of_mine:Net")
    assert found.options == {}
    assert found.supplied == {"classes", "channels"}


def test_an_instance_is_no_model(place):
    assert "expected its class, Net, or a function" in answer("net")["problem"]


def test_a_softmax_before_cross_entropy_is_noted(place):
    assert "remove the softmax" in answer("Sure")["note"]
    assert answer("Net")["note"] is None


def test_a_state_between_batches_is_found_in_a_trial(place):
    assert "a second batch, of 3 samples after 2, fails" in answer("Keeping")["problem"]


class Bare:
    """The methods of an estimator and nothing else."""

    def __init__(self, shift=0.0):
        self.shift = shift

    def fit(self, inputs, targets):
        self.classes_ = np.unique(targets)
        return self

    def predict(self, inputs):
        return self.classes_[self.predict_proba(inputs).argmax(axis=1)]

    def predict_proba(self, inputs):
        return np.full((len(inputs), len(self.classes_)), 1 / len(self.classes_))


class Numbers:
    def fit(self, inputs, targets):
        return self

    def predict(self, inputs):
        return np.where(np.arange(len(inputs)) < 5, 0.0, np.nan)


class Narrow(Bare):
    def predict_proba(self, inputs):
        return np.full((len(inputs), 1), 0.5)


def estimator(name, **options):
    path = name if ":" in name else f"test_strangers_programs:{name}"
    dataset = Entry("wine", "wine", {})
    fields = grid.training({"models": {"mine": {"import": path} | options}}, "mine", dataset)
    return vary(dataset=dataset, **fields, schedule=grid.NO_SCHEDULE, seed=3)


def test_methods_suffice_for_a_classifier():
    tried = trials.tried_out(estimator("Bare"), (13,), usual(3))
    assert tried["seconds"] > 0
    assert estimators.kind(Bare()) == "classifier"


@pytest.mark.parametrize(
    ("name", "task", "message"),
    [
        ("sklearn.cluster:KMeans", usual(None), "KMeans is a clusterer"),
        ("sklearn.ensemble:IsolationForest", usual(None), "is a outlier detector"),
        ("sklearn.mixture:GaussianMixture", usual(3), "is a density estimator"),
        ("Numbers", usual(None), "predicts numbers that are not finite"),
        ("Narrow", named("multilabel", 3), r"it predicts \(\d+, 1\)"),
    ],
)
def test_estimators_that_cannot_be_scored_are_told(name, task, message):
    with pytest.raises(trials.UnfitPartError, match=message):
        trials.tried_out(estimator(name), (13,), task)


def in_a_pool(_):
    try:
        allcores.run(lambda worker: 0, workers=1)
    except ValueError as error:
        return str(error)


def test_a_daemonic_process_is_told_that_it_has_no_workers():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert "such as one of multiprocessing.Pool" in pool.map(in_a_pool, [0])[0]


@pytest.mark.parametrize("timeout", [0, -1, "5", None, float("nan"), True])
def test_a_timeout_is_checked_at_the_call(timeout):
    with pytest.raises(ValueError, match="expected a timeout of more than 0 seconds"):
        allcores.run(lambda worker: 0, workers=1, timeout=timeout)


def leave_or_wait(worker, how):
    if worker.rank == 0:
        time.sleep(1000)
    getattr(worker, how)(*([1.0] if how in ("sum", "broadcast") else []))


@pytest.mark.parametrize("how", ["sum", "broadcast", "barrier"])
def test_the_worker_that_does_not_come_is_blamed(how):
    with pytest.raises(allcores.RankFailedError, match="worker 0"):
        allcores.run(leave_or_wait, how, workers=2, timeout=2)


def leave(worker):
    if worker.rank:
        worker.sum(1.0)


def test_workers_that_wait_for_one_that_has_left_are_told_long_before_the_time_out(monkeypatch):
    monkeypatch.setattr(supervision, "IN_VAIN", 3.0)
    where = r"worker 0 \(rank 0\) in end, worker 1 \(rank 1\) in sum"
    with pytest.raises(allcores.RankFailedError, match=f"in different places: {where}"):
        allcores.run(leave, workers=2)


def broadcast_for_long(worker):
    worker.world.clock.enter("broadcast")
    time.sleep(4)
    return worker.rank


def test_workers_that_are_slow_in_one_place_do_not_wait_in_vain(monkeypatch):
    monkeypatch.setattr(supervision, "IN_VAIN", 1.0)
    assert allcores.run(broadcast_for_long, workers=2) == [0, 1]


def with_buffer(kind):
    module = torch.nn.Linear(3, 2, device="meta" if kind == "meta" else None)
    buffers = {
        "sparse": lambda: torch.eye(3).to_sparse(),
        "expanded": lambda: torch.zeros(1, 3).expand(4, 3),
        "conjugate": lambda: torch.zeros(3, dtype=torch.complex64).conj(),
    }
    if kind in buffers:
        module.register_buffer("odd", buffers[kind]())
    return module


def share_odd(worker, kind):
    make = lambda parameters: torch.optim.SGD(parameters, lr=0.1)  # noqa: E731
    worker.share(with_buffer(kind), make, "shared_memory")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("meta", "weight is on the device meta"),
        ("sparse", "odd is sparse"),
        ("expanded", "odd is expanded"),
        ("conjugate", "odd is sparse, quantized, or a conjugate"),
    ],
)
def test_tensors_without_plain_memory_are_told(kind, message):
    with pytest.raises(allcores.RankFailedError, match=message):
        allcores.run(share_odd, kind, workers=2)


IMPORTS = """
import os, sys, torch
import allcores

def has_compiler(worker):
    return "torch._dynamo" in sys.modules, os.getppid()

print(allcores.run(has_compiler, workers=2, pinning=False) == [(True, os.getpid())] * 2)
"""


def test_workers_are_forked_from_what_has_imported_what_optimizers_need():
    said = subprocess.check_output(
        [sys.executable, "-c", IMPORTS], cwd=ROOT / "scripts", env=ENVIRONMENT, text=True
    )
    assert said.strip() == "True"


def move_quantized(rank):
    dist = torch.distributed
    quantized = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)
    for tensor in (quantized, torch.eye(3).to_sparse()):
        for call in (
            lambda tensor=tensor: dist.broadcast(tensor, 0),
            lambda tensor=tensor: dist.all_gather([tensor.clone()] * 2, tensor),
        ):
            with pytest.raises((RuntimeError, NotImplementedError, ValueError, TypeError)):
                call()
                raise AssertionError("was accepted")


def test_tensors_that_are_no_plain_memory_crash_no_rank(tmp_path):
    ranks(2, move_quantized, tmp_path)


WITHOUT_END = """
import torch.distributed as dist
import allcores.backend
allcores.backend.register()
dist.init_process_group("shm", init_method="file://{file}", rank=0, world_size=1)
"""


def test_a_program_that_ends_without_destroying_its_group_says_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_END.format(file=tmp_path / "store")],
        cwd=ROOT / "scripts",
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "Exception ignored" not in done.stderr


def test_waiting_threads_spin_briefly_unless_the_user_says_otherwise():
    for given, expected in ((None, cores.SPINS), ("7", "7")):
        code = "import os; from allcores.machine import cores; cores.set_thread_variables(1)"
        said = subprocess.check_output(
            [sys.executable, "-c", f"{code}; print(os.environ[cores.SPIN_VARIABLE])"],
            cwd=ROOT / "scripts",
            env={name: value for name, value in ENVIRONMENT.items() if "GOMP" not in name}
            | ({cores.SPIN_VARIABLE: given} if given else {}),
            text=True,
        )
        assert said.strip() == expected
