"""Warm start: a program that is forked runs, fails and ends as one that starts by itself."""

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import patience
import pytest
import torch
from conftest import DDP, ENVIRONMENT, LENET, ROOT, RUN, same_weights, using, vary
from patience import wait_for
from project import copy
from slurm_lab import slow_model
from test_strategies import alive, children, program_of

from allcores_study.campaign import warm_start
from allcores_study.config.run import Entry

TRAIN = ROOT / "scripts" / "train.py"
RING, SHARED_MEMORY = (Entry(name, name, {}) for name in ("ring", "shared_memory"))
ENDLESS = vary(RUN, epochs=100_000, strategy=DDP, workers=2)
COLD = "starting without the warm process"


def started(folder):
    """Start a warm process in the working folder; a function that ends it."""
    stop = warm_start.start(folder / "warm.log")

    def end():
        stop()
        assert not warm_start.folder().exists()

    return end


def fork(program, *arguments, **popen):
    """The process of the client that asks the warm process of the working folder."""
    command = [*warm_start.command(program, True), *arguments]
    given = {"env": ENVIRONMENT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} | popen
    return subprocess.Popen(list(map(str, command)), text=True, **given)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a warm process that goes on from test to test."""
    folder = tmp_path_factory.mktemp("place")
    with contextlib.chdir(folder):
        end = started(folder)
    yield folder
    with contextlib.chdir(folder):
        end()


@pytest.fixture
def warm(place, monkeypatch):
    """fork(), of that process."""
    monkeypatch.chdir(place)
    yield fork
    wait_for(lambda: not children(warm_process()))


@pytest.fixture
def private_fork(tmp_path, monkeypatch):
    """fork(), of a warm process of this test only."""
    monkeypatch.chdir(tmp_path)
    end = started(tmp_path)
    yield fork
    end()


@pytest.fixture
def train(warm, laboratory):
    """Called with a Run, it gives the process of the client."""
    return trains(warm, laboratory)


def trains(fork, laboratory):
    laboratory.data()
    return lambda run, name="run": fork(TRAIN, *laboratory.arguments(run, name))


def says(process, status=0):
    output, _ = process.communicate(timeout=patience.seconds(120))
    assert process.returncode == status, output
    return output


def warm_process(caller=None):
    """The one of a process; of this one, that of the test."""
    folder = "" if caller else warm_start.folder()

    def warm_pids():
        return [
            pid
            for pid in children(caller or os.getpid())
            if alive(pid)
            and f"warm_process.py\0{folder}" in Path(f"/proc/{pid}/cmdline").read_text()
        ]

    wait_for(warm_pids)  # it may not have replaced what it was forked from yet
    (pid,) = warm_pids()
    return pid


def ranks_of(client, count=2):
    """The processes of a run that has begun to train: its own, and its ranks."""
    wait_for(lambda: program_of(client) and len(children(program_of(client))) == count)
    program = program_of(client)
    return [program, *children(program)]


def checkpoint(laboratory, name="run"):
    return laboratory.checkpoints(name) / "latest.allcores"


TELLING = """
import json, os, sys, threading
import torch
print(json.dumps({
    "arguments": sys.argv[1:-2],
    "variable": os.environ.get("ASKED"),
    "other": os.environ.get("NOT_HANDED_OVER"),
    "folder": os.getcwd(),
    "cores": sorted(os.sched_getaffinity(0)),
    "input": sys.stdin.read(),
    "threads": threading.active_count(),
}))
print("to stderr", file=sys.stderr)
sys.exit(7 if sys.argv[1] == "one" else "no")
"""


def test_a_program_is_given_what_its_client_has(warm, tmp_path, monkeypatch):
    program = tmp_path / "telling.py"
    program.write_text(TELLING)
    folder = tmp_path / "ö"
    folder.mkdir()
    core = min(os.sched_getaffinity(0))
    process = warm(
        program,
        "one",
        "two words",
        "\udcff",
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT | {"ASKED": "a\nb" * 40_000},
        cwd=folder,
        preexec_fn=lambda: os.sched_setaffinity(0, [core]),
    )
    output, errors = process.communicate("hello")
    assert process.returncode == 7
    assert errors == "to stderr\n"
    assert json.loads(output) == {
        "arguments": ["one", "two words", "\udcff"],
        "variable": "a\nb" * 40_000,
        "other": None,
        "folder": str(folder),
        "cores": [core],
        "input": "hello",
        "threads": 1,
    }
    _, errors = warm(
        program, "other", stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ).communicate()
    assert errors == "to stderr\nno\n"


def test_a_program_that_is_killed_by_a_signal_looks_so(warm, tmp_path):
    program = tmp_path / "ending.py"
    for number in (signal.SIGKILL, signal.SIGBUS, signal.SIGTERM):
        program.write_text(f"import os; os.kill(os.getpid(), {int(number)})")
        assert warm(program).wait() == -number


def test_the_weights_are_those_of_a_cold_start(train, laboratory):
    """With processes of their own, with their sockets, with shared memory, with two threads."""
    by_itself = functools.partial(laboratory.train, forked=False)
    runs = [using(strategy, 3, model=LENET) for strategy in (DDP, SHARED_MEMORY)]
    for number, run in enumerate([*runs, vary(RUN, model=LENET, threads_per_worker=2)]):
        for name, process in {"warm": train, "cold": by_itself}.items():
            output = says(process(run, f"{name}{number}"))
            assert COLD not in output
        warm, cold = (
            torch.load(laboratory.folder / f"{name}{number}" / "weights.pt")
            for name in ("warm", "cold")
        )
        assert same_weights(warm, cold), run.strategy.label


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_client_that_is_ended_takes_its_run_along(train, laboratory, number):
    client = train(ENDLESS)
    wait_for(checkpoint(laboratory).exists)
    processes = ranks_of(client.pid)
    client.send_signal(number)
    asked = number in (signal.SIGTERM, signal.SIGINT)
    wait_for(lambda: not any(map(alive, processes)), 5 if asked else 1)
    if asked:
        assert "the same command resumes from the last checkpoint" in says(client, status=1)
    # And the warm process goes on.
    says(train(vary(RUN, seed=1), "other"))


@pytest.mark.parametrize("delay", [0, 0.02, 0.1])
def test_a_client_that_is_killed_early_leaves_nothing(train, delay):
    says(train(vary(RUN, epochs=1), "first"))  # all is imported
    client = train(ENDLESS)
    time.sleep(delay)
    client.kill()
    client.wait()
    wait_for(lambda: not children(warm_process()), 1)


def test_a_program_ends_with_its_caller_though_the_warm_process_goes_on(warm, tmp_path):
    program, caller = tmp_path / "program.py", tmp_path / "caller.py"
    program.write_text("import time; time.sleep(100)")
    command = [str(word) for word in warm_start.command(program, True)]
    place = command.index(str(os.getpid()))
    caller.write_text(
        f"import os, subprocess; words = {command!r}; words[{place}] = str(os.getpid())\n"
        "subprocess.run(words)"
    )
    process = subprocess.Popen([sys.executable, caller], env=ENVIRONMENT)
    wait_for(lambda: children(warm_process()))
    process.kill()
    process.wait()
    wait_for(lambda: not children(warm_process()), 1)


def test_a_program_that_starts_over_reads_its_file_again(private_fork, tmp_path):
    program, asked = tmp_path / "asked.py", tmp_path / "asked.json"
    program.write_text("import sys, time; print(sys.stdin.read(), flush=True); time.sleep(3)")
    asked.write_text("the request")
    with asked.open() as file:
        client = private_fork(program, stdin=file)
        assert client.stdout.readline() == "the request\n"
        os.kill(warm_process(), signal.SIGKILL)
        assert COLD in client.stdout.readline()
        assert client.stdout.readline() == "the request\n"
        assert client.wait() == 0


def test_a_client_that_is_stopped_stops_its_run(train, laboratory):
    def state(pid):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    client = train(ENDLESS)
    wait_for(checkpoint(laboratory).exists)
    processes = ranks_of(client.pid)
    client.send_signal(signal.SIGTSTP)
    wait_for(lambda: {state(pid) for pid in [client.pid, *processes]} == {"T"}, 5)
    client.send_signal(signal.SIGCONT)
    wait_for(lambda: "T" not in map(state, [client.pid, *processes]), 5)
    client.kill()
    client.wait()
    wait_for(lambda: not any(map(alive, processes)), 1)


def test_a_warm_process_that_is_killed_loses_no_run(private_fork, laboratory, monkeypatch):
    """Runs of more than a second on any processor, which save all the time."""
    slow_model(Path.cwd(), seconds=0.01, epochs=20)
    monkeypatch.syspath_prepend(Path.cwd())
    slow = vary(RUN, model=Entry("slow", "slow:Net", {}), epochs=20)
    runs = {name: vary(slow, seed=seed) for seed, name in enumerate(["one", "other"])}
    laboratory.data()
    clients = {
        name: private_fork(TRAIN, *laboratory.arguments(run, name, save_every=0.06))
        for name, run in runs.items()
    }
    for name in runs:
        wait_for(checkpoint(laboratory, name).exists)
    processes = [pid for client in clients.values() for pid in ranks_of(client.pid, 1)]
    os.kill(warm_process(), signal.SIGKILL)
    wait_for(lambda: not any(map(alive, processes)), 1)
    for name, run in runs.items():
        output = says(clients[name])
        assert f"{COLD}: it has ended, and the program with it" in output
        assert "resumed after epoch" in output
        _, expected = laboratory.trained(run, f"undisturbed_{name}")
        assert same_weights(torch.load(laboratory.folder / name / "weights.pt"), expected)


@pytest.mark.parametrize("way", ["none", "dead", "broken", "no room"])
def test_without_a_warm_process_a_run_starts_by_itself(
    laboratory, tmp_path, monkeypatch, way, request
):
    monkeypatch.chdir(tmp_path)
    if way == "broken":
        monkeypatch.setattr(warm_start, "PROGRAMS", tmp_path)
        (tmp_path / "warm_process.py").write_text("raise ImportError('no torch')")
        shutil.copy(ROOT / "scripts" / "start.py", tmp_path)
    if way == "no room":
        monkeypatch.setattr(warm_start, "folder", lambda *_: Path("/proc/nowhere/socket"))
    if way != "none":
        request.addfinalizer(warm_start.start(tmp_path / "warm.log"))
    if way == "dead":
        os.kill(warm_process(), signal.SIGKILL)
    command = [*warm_start.command(TRAIN, True), *laboratory.arguments(RUN)]
    output = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
    )
    assert output.returncode == 0
    assert output.stdout.count(COLD) == 1
    assert "% on 20 held-out samples" in output.stdout


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of the project's programs, of which the warm process is one."""
    scripts = copy(tmp_path / "project", linked=()).folder / "scripts"
    monkeypatch.setattr(warm_start, "PROGRAMS", scripts)
    return scripts


def test_other_code_than_was_imported_is_not_run(copied, private_fork, tmp_path):
    """Not even if it has the same length; another link to it changes nothing."""
    program = tmp_path / "program.py"
    program.write_text("from allcores_study.training import progress; print(progress.HOW)")
    file = copied / "allcores_study" / "training" / "progress.py"
    environment = ENVIRONMENT | {"PYTHONPATH": str(copied)}
    with file.open("a") as text:
        text.write('HOW = "as before"')
    time.sleep(0.1)
    assert says(private_fork(program, env=environment)) == "as before\n"
    # As tools do that install packages by links to files of their cache.
    os.link(file, tmp_path / "link")
    (tmp_path / "link").unlink()
    assert says(private_fork(program, env=environment)) == "as before\n"
    file.write_text(file.read_text().replace("as before", "otherwise"))
    said = f"{COLD}: {file} has changed since it was imported\notherwise\n"
    assert says(private_fork(program, env=environment)) == said


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("door", ["closed", "open"])
def test_another_user_is_turned_away(private_fork, tmp_path, door):
    program = tmp_path / "program.py"
    program.write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'was_run')!r}).touch()")
    path = warm_start.folder() / warm_start.SOCKET
    if door == "open":  # as if somebody had loosened the permissions
        path.chmod(0o777)
        path.parent.chmod(0o777)
    asking = f"""
import os, socket
os.setgroups([]); os.setgid(65534); os.setuid(65534)
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(10)
connection.connect({"/".join(path.parts[-2:])!r})
try:
    connection.sendall(b"x")
    print(connection.recv(100))
except ConnectionError:
    print(b"")
"""
    other = subprocess.run(
        [shutil.which("python3", path="/usr/bin:/usr/local/bin"), "-c", asking],
        capture_output=True,
        text=True,
        cwd=path.parents[1],
    )
    if door == "open":
        assert other.stdout == "b''\n", other.stderr
    else:
        assert "PermissionError" in other.stderr
    assert not children(warm_process())
    assert not (tmp_path / "was_run").exists()
    assert private_fork(program).wait() == 0  # to its own user it is open
    assert (tmp_path / "was_run").exists()


def test_many_programs_at_once(warm, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys; sys.stdin.readline(); sys.exit(int(sys.argv[1]))")
    clients = [warm(program, number, stdin=subprocess.PIPE) for number in range(30)]
    wait_for(lambda: all(program_of(client.pid) for client in clients))
    for number, client in enumerate(clients):
        output, _ = client.communicate("\n", timeout=patience.seconds(60))
        assert (client.returncode, output) == (number, "")
    wait_for(lambda: not children(warm_process()))


def test_one_who_says_nothing_keeps_nobody_waiting(warm, train):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(os.path.relpath(warm_start.folder() / warm_start.SOCKET))
        says(train(RUN))


def test_the_record_of_a_run_begins_with_its_client(train, laboratory):
    asked = time.time()
    client = train(RUN)
    begun = time.time()
    says(client)
    metrics = json.loads((laboratory.folder / "run" / "metrics.json").read_text())
    assert asked - 0.02 <= metrics["started"] <= begun + 0.02
    # What the warm process has imported is nobody's CPU time.
    assert metrics["cpu_seconds"] < metrics["ended"] - metrics["started"]
