"""Each model is smoke tested in a process of its own, which ends whatever the model does."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, ROOT, RUN, program, usual, vary

from allcores_study.config import component
from allcores_study.config.run import Entry, digest
from allcores_study.planning import trials

KEEPING = """
class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.utils.weight_norm(nn.Linear(64, classes))

    def forward(self, x):
        self.hidden = self.body(x.flatten(1))
        return self.hidden.tanh()
"""
LEAVING = """
import multiprocessing, pathlib, time

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        helper = multiprocessing.Process(target=time.sleep, args=(1000,), daemon=True)
        helper.start()
        pathlib.Path("helper").write_text(str(helper.pid))

    def forward(self, x):
        time.sleep(1000)
"""
THREADED = """
import threading, time

threading.Thread(target=time.sleep, args=(1000,)).start()

def Net(classes):
    torch.set_grad_enabled(False)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes).requires_grad_())
"""


def written(folder, text):
    """The Run of a model with this text."""
    name = f"mine_{digest(text)}"
    (folder / f"{name}.py").write_text(f"import torch\nfrom torch import nn\n{text}")
    component.source_of.cache_clear()
    return vary(model=Entry("own", f"{name}:Net", {}))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The working directory, for models of one's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return tmp_path


def test_a_model_may_keep_what_it_computes(place):
    said = trials.answer(vary(written(place, KEEPING), batch_size=1), (1, 8, 8), usual(3))
    assert said["problem"] is None
    assert [file for file in said["loaded"] if file.startswith("mine_")]


def test_a_model_of_which_no_average_can_be_kept_is_told(place):
    run = vary(written(place, KEEPING), batch_size=1, ema=0.9)
    said = trials.answer(run, (1, 8, 8), usual(3))
    assert "deepcopy" in said["problem"] and said["place"][-1] == "ema"


def test_what_a_model_does_to_its_process_ends_with_its_trial(place):
    """Gradients that it turns off for all, and a thread that goes on."""
    said = trials.answer(written(place, THREADED), (1, 8, 8), usual(3))
    assert "does not require grad" in said["problem"]
    assert trials.answer(RUN, (3, 8, 8), usual(3))["problem"] is None


def test_a_model_that_hangs_is_ended_and_named_with_its_line(place):
    hangs = "\n        import time; time.sleep(1000)"
    text = KEEPING.replace("def forward(self, x):", f"def forward(self, x):{hangs}")
    said = trials.answer(written(place, text), (1, 8, 8), usual(3), limit=3)
    line = 3 + text.splitlines().index(hangs.strip("\n"))
    assert "smoke test did not end within 3 s" in said["problem"]
    assert f".py, line {line})" in said["problem"]


def test_a_trial_ends_at_its_limit_although_the_model_has_started_a_process(place):
    trial = {
        "settings": written(place, LEAVING).to_json(),
        "shape": [1, 8, 8],
        "task": ["classification", 3],
    }
    process = subprocess.run(
        program("check_models"),
        input=json.dumps([trial | {"strategies": [], "limit": 3}]),
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT,
    )
    assert "smoke test did not end within 3 s" in json.loads(process.stdout)["problem"]
    assert not Path("/proc", (place / "helper").read_text()).exists()


def test_a_trial_that_is_killed_does_not_blame_the_model(place):
    killed = "import os, signal\n\ndef Net():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    said = trials.answer(written(place, killed), (1, 8, 8), usual(3))
    assert "the process of its smoke test was killed by SIGKILL; the system" in said["problem"]


def test_ctrl_c_ends_trials_without_a_traceback(place):
    hangs = KEEPING.replace("super().__init__()", "super().__init__()\n        time.sleep(1000)")
    run = written(place, f"import time\nprint('tried', flush=True)\n{hangs}")
    trial = {
        "settings": run.to_json(),
        "shape": [1, 8, 8],
        "task": ["classification", 3],
        "strategies": [],
    }
    trial |= {"limit": 600}
    process = subprocess.Popen(
        [sys.executable, ROOT / "scripts" / "check_models.py"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    process.stdin.write(json.dumps([trial]))
    process.stdin.close()
    assert process.stderr.readline() == "tried\n"
    os.killpg(process.pid, signal.SIGINT)
    assert "Traceback" not in process.stderr.read()
    assert process.wait() == -signal.SIGINT


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "GeneratorExit"])
def test_whatever_a_model_raises_is_told(place, error):
    run = written(place, f"def Net(classes):\n    raise {error}\n")
    assert trials.answer(run, (1, 8, 8), usual(3))["problem"].startswith(f"it raises {error}")
