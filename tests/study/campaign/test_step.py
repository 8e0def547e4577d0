"""The book that profiles/step.py keeps of an allocation's cores and memory."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from conftest import ENVIRONMENT, ROOT

PROGRAM = ROOT / "profiles" / "step.py"
spec = importlib.util.spec_from_file_location("step", PROGRAM)
step = importlib.util.module_from_spec(spec)
spec.loader.exec_module(step)
ROOM = {"n1": (4, 4000), "n2": (4, 4000), "n3": (8, 4000)}


def running(*names, cores=1, memory=100):
    return {"nodes": list(names), "cores": cores, "memory": memory}


@pytest.mark.parametrize(
    ("steps", "asked", "names"),
    [
        ([], (1, 4, 100), ["n1"]),
        # The fullest with room, so that wider runs find some.
        ([running("n2"), running("n3", cores=2)], (1, 3, 100), ["n2"]),
        ([running("n2")], (1, 4, 100), ["n1"]),
        ([running("n1", memory=3950), running("n2", memory=3950)], (1, 1, 100), ["n3"]),
        ([running("n1", "n2", cores=3)], (2, 2, 100), None),
        ([running("n1", "n2", cores=3)], (3, 1, 100), ["n1", "n2", "n3"]),
    ],
)
def test_a_run_gets_nodes_with_room_for_it(steps, asked, names):
    assert step.with_room(steps, ROOM, *asked) == names


def test_what_a_step_has_is_free_again_once_its_process_has_ended(tmp_path):
    book, room = tmp_path / "book", {"n1": (1, 1000)}
    other = subprocess.Popen(["sleep", "1"])
    entry = running("n1") | {"pid": other.pid, "began": step.began(other.pid)}
    # Another process that has the same number now.
    reused = running("n1") | {"pid": os.getpid(), "began": 1}
    book.write_text("".join(f"{json.dumps(record)}\n" for record in (entry, reused)))
    assert other.poll() is None
    assert step.take(book, room, 1, 1, 100) == ["n1"]
    assert other.poll() is not None, "it has waited for its end"
    (only,) = map(json.loads, book.read_text().splitlines())
    assert only["pid"] == os.getpid()


def test_what_no_node_has_is_refused():
    environment = ENVIRONMENT | {step.ROOM: "n1 4 4000\nn2 4 4000\n", "SLURM_JOB_ID": "7"}
    flags = ["--nodes=2", "--cores=2", "--mem=5000", "--", "true"]
    run = subprocess.run(
        [sys.executable, "-I", "-S", PROGRAM, *flags],
        env=environment,
        text=True,
        capture_output=True,
    )
    assert run.returncode == 1
    assert "the run needs 2 node(s) with 2 cores and 5000 MB each" in run.stderr
