"""Warm processes and their clients end when they are told to, whatever they are doing."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import patience
import pytest
from conftest import ENVIRONMENT, ROOT
from patience import wait_for
from project import copy
from test_strategies import alive, children
from test_warm_start import warm_process

from allcores_study.campaign import warm_start


def test_a_warm_process_ends_whatever_it_is_just_importing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program, log = ROOT / "tests" / "warm" / "dropping.py", tmp_path / "warm.log"
    stop = warm_start.start(log, program)
    wait_for(lambda: "importing" in log.read_text())
    stop()
    assert not warm_start.folder().exists()


def test_a_signal_is_passed_on_after_the_request(tmp_path):
    (tmp_path / "snakemake").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "snakemake" / warm_start.SOCKET))
        listener.listen()
        client = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", ROOT / "scripts" / "start.py"),
                *(tmp_path / "snakemake" / warm_start.SOCKET, str(os.getpid()), "program"),
            ],
            # More than a socket holds.
            env=ENVIRONMENT | {f"LARGE{number}": "x" * 100_000 for number in range(10)},
        )
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as stream:
            length = int.from_bytes(stream.read(8))
            client.send_signal(signal.SIGINT)
            time.sleep(0.2)
            assert json.loads(stream.read(length))["command"] == ["program"]
            assert stream.read(1) == bytes([signal.SIGINT])
    assert client.wait(timeout=patience.seconds(20)) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_when_snakemake_ends_nothing_is_left(tmp_path, number):
    project = copy(tmp_path)
    first = {"models": ["lenet"], "strategies": ["serial"]}
    project.configure(lambda config: config["studies"]["first"].update(first))
    project.call("--until", "train")
    project.configure(lambda config: config["models"]["mlp"].update(epochs=100_000))
    project.configure(lambda config: config["studies"]["first"].update(models=["lenet", "mlp"]))
    process = project.snakemake(start_new_session=True)
    wait_for(lambda: list((project.results / "checkpoints").rglob("latest.allcores")))
    warm = warm_process(process.pid)
    keepers = children(warm)
    programs = [pid for keeper in keepers for pid in children(keeper)]
    ranks = [pid for program in programs for pid in children(program)]
    assert programs and ranks
    os.killpg(process.pid, number)  # as a terminal, or a batch system, does
    wait_for(lambda: not any(map(alive, [*keepers, *programs, *ranks])), 10)
    output, _ = process.communicate(timeout=patience.seconds(60))
    assert "--allowed-rules" not in output, "nor are tables made of the runs that there are"
    wait_for(lambda: not alive(warm), 1)
    assert not list((tmp_path / ".snakemake").glob("warm_process_*"))
    logs = [log.read_text() for log in (project.results / "logs" / "train").rglob("*.log")]
    assert any("the same command resumes from the last checkpoint" in log for log in logs)
