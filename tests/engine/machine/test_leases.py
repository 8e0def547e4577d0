"""Cores: which are chosen, that nobody else gets them, that they come back; memory that is free."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import patience
import pytest
from conftest import DDP, ENVIRONMENT, ROOT, RUN, using
from patience import wait_for

from allcores.files import read_json
from allcores.machine import cores, leases, memory
from allcores_study.training import loop
from allcores_study.training.loop import train

# cpu -> (NUMA node, core): two nodes of two cores of two threads, numbered as Linux likes to.
PLACES = {cpu: (cpu // 2 % 2, cpu % 4) for cpu in range(8)}


@pytest.mark.parametrize(
    ("free", "count", "chosen"),
    [
        ({0, 1, 2, 3, 4, 5, 6, 7}, 1, [0]),
        ({0, 1, 2, 3, 4, 5, 6, 7}, 2, [0, 1]),  # two cores of a node, not two threads of a core
        ({0, 1, 2, 3, 4, 5, 6, 7}, 3, [0, 4, 1]),  # both threads of a core, side by side
        ({0, 1, 2, 3, 4, 5, 6, 7}, 8, [0, 4, 1, 5, 2, 6, 3, 7]),
        ({0, 1, 4, 5, 2, 6}, 1, [2]),  # the fullest node that has a whole core
        ({0, 1, 4, 5, 2, 6}, 2, [0, 1]),  # not the fullest: two whole cores
        ({4, 5, 2, 3, 6, 7}, 2, [2, 3]),  # not the second threads of a node in use
        ({4, 5, 6, 7}, 2, [4, 5]),  # where nothing else is left
        ({0, 1, 5, 2, 6}, 1, [2]),  # a core of which nothing is in use
        ({4, 1, 6}, 3, [1, 4, 6]),  # no node has room for all
        ({3}, 1, [3]),
    ],
)
def test_which_cores_are_chosen(free, count, chosen):
    assert leases.choose(free, count, PLACES) == chosen


def test_the_topology_of_this_machine_names_every_core():
    mine = os.sched_getaffinity(0)
    places = leases.topology(mine)
    assert set(places) == mine
    assert sorted(leases.choose(mine, len(mine), places)) == sorted(mine)


@contextlib.contextmanager
def burning(*cpus):
    """While somebody else uses these cores."""
    burner = subprocess.Popen(
        [sys.executable, "-c", "while True: pass"],
        preexec_fn=lambda: os.sched_setaffinity(0, cpus),
    )
    try:
        yield
    finally:
        burner.kill()
        burner.wait()


# Leases as many cores as it is told, says which, and keeps them until its input ends.
HOLDER = """
import os, sys
from allcores.machine import leases
leases.NAME = sys.argv[1]
with leases.leased(int(sys.argv[2])) as cores:
    print(cores, sorted(os.sched_getaffinity(0)), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def machine(monkeypatch):
    """Leases of a name of its own, so that runs beside this test have no part in it."""
    name = f"allcores-test-{os.getpid()}-" + "{}"
    monkeypatch.setattr(leases, "NAME", name)
    holders = []

    def hold(count):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, name, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT | {"PYTHONPATH": str(ROOT / "scripts")},
        )
        holders.append(process)
        return process, process.stdout.readline().strip()

    yield hold
    for process in holders:
        process.kill()
        process.wait()


def leased(count):
    with leases.leased(count) as cores:
        return cores


def test_no_two_have_the_same_core(machine):
    everything = sorted(os.sched_getaffinity(0))
    said = [machine(1)[1] for _ in everything]
    assert sorted(said) == sorted(f"[{core}] [{core}]" for core in everything)
    with leases.leased(1) as cores:
        assert cores is None
        assert sorted(os.sched_getaffinity(0)) == everything


@pytest.mark.parametrize("ending", [signal.SIGKILL, None])
def test_a_lease_ends_with_its_process(machine, ending):
    everything = os.sched_getaffinity(0)
    process, said = machine(len(everything))
    assert said.startswith("[")
    assert leased(1) is None
    process.stdin.close() if ending is None else process.send_signal(ending)
    process.wait()
    with leases.leased(len(everything)) as cores:
        assert sorted(cores) == sorted(everything)
        assert leases._leased_cores() == everything
    assert not leases._leased_cores()


def test_neither_more_cores_than_there_are_nor_those_of_a_quota_are_leased(machine, monkeypatch):
    """A quota, or the number that a batch system gives, says nothing of which cores."""
    everything = len(os.sched_getaffinity(0))
    assert leased(1 + everything) is None
    if everything < 2:
        pytest.skip("needs two cores")
    with monkeypatch.context() as patched:
        patched.setattr(leases.cores, "quota", lambda: everything - 1)
        assert leased(1) is None
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", str(everything - 1))
    assert leased(1) is None


def test_in_a_network_of_its_own_nothing_is_leased():
    """There the sockets of other containers, which may be on the same cores, cannot be seen."""
    code = "from allcores.machine import leases\nwith leases.leased(1) as cores: print(cores)"
    environment = ENVIRONMENT | {"PYTHONPATH": str(ROOT / "scripts")}
    command = ["unshare", "-n", sys.executable, "-c", code]
    run = subprocess.run(command, text=True, capture_output=True, env=environment)
    if "unshare" in run.stderr:
        pytest.skip("no network namespace can be made here")
    assert run.stdout == (
        "not pinned to cores: this container has its own network, so it does not see the leases of "
        "others\nNone\n"
    )


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_each_worker_is_kept_to_a_core_of_its_own(laboratory, monkeypatch, machine):
    before = os.sched_getaffinity(0)

    def note_affinity_and_train(*arguments):
        file = laboratory.folder / str(arguments[-1].rank)
        file.write_text(json.dumps(sorted(os.sched_getaffinity(0))))
        train(*arguments)

    monkeypatch.setattr(loop, "train", note_affinity_and_train)
    metrics, _ = laboratory.trained(using(DDP, 2))
    seen = [json.loads((laboratory.folder / str(rank)).read_text()) for rank in range(2)]
    assert seen == [[core] for core in metrics["cores"]["pinned"]]
    assert os.sched_getaffinity(0) == before
    wait_for(lambda: not leases._leased_cores())


def test_a_run_with_more_processes_than_cores_is_not_pinned(laboratory, machine):
    """Others then cannot be told from its own, and it is not called contended."""
    metrics, _ = laboratory.trained(using(DDP, 2 * len(os.sched_getaffinity(0))))
    assert metrics["cores"]["pinned"] is metrics["cores"]["others_seconds"] is None
    assert not metrics["cores"]["contended"]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_whose_cores_others_use_is_contended(laboratory, threads):
    """However many threads it has."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    if threads > len(cores):
        pytest.skip("needs two cores")

    with burning(*cores):
        run = using(RUN.strategy, 1, threads_per_worker=threads, epochs=100)
        process = laboratory.train(run, preexec_fn=lambda: os.sched_setaffinity(0, cores))
        output = patience.ended(process, 300)
    assert process.returncode == 0, output
    recorded = read_json(laboratory.folder / "run" / "metrics.json")["cores"]
    if recorded["pinned"] is None:
        pytest.skip("the cores are leased to others")
    assert recorded["contended"]
    assert recorded["others_seconds"] > 0.1


def test_the_memory_of_the_control_group_counts(tmp_path, monkeypatch):
    group = tmp_path / "a" / "b"
    group.mkdir(parents=True)
    (tmp_path / "membership").write_text("0::/a/b\n")
    monkeypatch.setattr(cores, "CGROUP", tmp_path)
    monkeypatch.setattr(cores, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(cores, "own_cgroup", lambda: group)
    assert memory.free_mb() > 100, "the machine's"
    (group / "memory.max").write_text("max\n")
    for name, text in (("max", "7000000\n"), ("current", "3000000\n"), ("stat", "")):
        (tmp_path / "a" / f"memory.{name}").write_text(text)
    assert memory.free_mb() == 4
    (tmp_path / "a" / "memory.stat").write_text("anon 5\ninactive_file 2000000\n")
    assert memory.free_mb() == 6


@pytest.mark.parametrize("place", ["memory/slurm/job", "memory"])
def test_the_memory_of_a_control_group_of_version_1_counts(tmp_path, monkeypatch, place):
    """As RHEL 7 and 8 have them; in a container its own group may lie where all are."""
    (tmp_path / "membership").write_text("9:cpu,cpuacct:/\n4:memory:/slurm/job\n")
    monkeypatch.setattr(cores, "CGROUP", tmp_path)
    monkeypatch.setattr(cores, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(cores, "own_cgroup", lambda: tmp_path)
    group = tmp_path / place
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("400000000\n")
    (group / "memory.usage_in_bytes").write_text("150000000\n")
    (group / "memory.stat").write_text("inactive_file 5\ntotal_inactive_file 50000000\n")
    assert memory.free_mb() == 300
