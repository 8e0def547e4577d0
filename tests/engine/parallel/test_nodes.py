"""One training over several nodes: launchers that find each other, and the numbers of one machine.

The nodes here are launchers on one machine, each with its ranks, as a cluster would start them.
"""

import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import time

import patience
import pytest
import torch
from conftest import ENVIRONMENT, LENET, RUN, same_weights, train_program, using, vary
from patience import wait_for
from test_strategies import ALL, SYNCHRONOUS, alive, children, program_of

from allcores.files import read_json
from allcores.parallel import nodes
from allcores_study.config import registry
from allcores_study.config.run import Entry

HOST = os.uname().nodename
OVER_NODES = {
    name: entry
    for name, entry in ALL.items()
    if not registry.strategies()[entry.name].constants.get("one_worker")
    and not registry.strategies()[entry.name].constants.get("one_node")
}


@pytest.fixture(autouse=True)
def loopback(monkeypatch):
    monkeypatch.setenv(nodes.INTERFACE, "lo")


class Cluster:
    """The launchers of one run, as processes."""

    def __init__(self, laboratory, run, name="run", of_last=None, **more):
        laboratory.data(run.dataset)
        self.folder, self.checkpoints = laboratory.folder / name, laboratory.checkpoints(name)
        job = laboratory.arguments(run, name, **more)
        last = laboratory.arguments(run, name, "last", **more | of_last) if of_last else job
        self.launchers = [
            subprocess.Popen(
                [*train_program(True), *(last if node == run.nodes - 1 else job)],
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=laboratory.folder,
                env=ENVIRONMENT | {"PMI_RANK": str(node), nodes.INTERFACE: "lo"},
            )
            for node in range(run.nodes)
        ]

    def outputs(self, seconds=100):
        return [patience.ended(launcher, seconds) for launcher in self.launchers]

    def ends_well(self):
        outputs = self.outputs()
        assert [launcher.returncode for launcher in self.launchers] == [0] * len(outputs), outputs
        return read_json(self.folder / "metrics.json"), torch.load(self.folder / "weights.pt")

    def is_under_way(self):
        wait_for((self.checkpoints / "latest.allcores").exists)
        return [program_of(launcher.pid) for launcher in self.launchers]


def differ(weights, others):
    return max(float((weights[key] - others[key]).abs().max()) for key in weights)


@pytest.mark.parametrize(
    "label", [label for label, entry in SYNCHRONOUS.items() if entry.name in OVER_NODES]
)
def test_two_nodes_of_two_workers_train_as_four_workers_and_as_serial(laboratory, label):
    entry = SYNCHRONOUS[label]
    run = using(entry, 2, nodes=2, model=LENET, epochs=3)
    metrics, weights = Cluster(laboratory, run).ends_well()
    assert (run.workers, metrics["settings"]["nodes"], len(metrics["nodes"])) == (4, 2, 2)
    for other in (using(entry, 4, model=LENET, epochs=3), vary(model=LENET, epochs=3)):
        _, expected = laboratory.trained(other, f"of_{other.workers}")
        assert differ(weights, expected) < 1e-5


@pytest.mark.parametrize(
    "name", [name for name in OVER_NODES if name not in SYNCHRONOUS or name == "ring"]
)
def test_every_strategy_trains_on_three_nodes(laboratory, name):
    run = using(ALL[name], 1, nodes=3, epochs=2)
    metrics, _ = Cluster(laboratory, run).ends_well()
    assert len(metrics["epochs"]) == 2
    assert metrics["cpu_seconds"] == pytest.approx(
        sum(s["cpu_seconds"] for node in metrics["nodes"] for s in node["sessions"])
    )


@pytest.mark.parametrize("name", ["shared_memory", "parameter_server", "local_sgd"])
def test_a_run_on_two_nodes_that_is_told_to_stop_goes_on_with_the_same_bits(laboratory, name):
    many = Entry("many", "fake", RUN.dataset.options | {"count": 1500})
    run = using(ALL[name], 2, nodes=2, dataset=many, epochs=2, batch_size=8)
    run = vary(run, optimizer=Entry("SGD", "SGD", {"lr": 0.001, "momentum": 0.9}))
    _, expected = Cluster(laboratory, run, name="whole").ends_well()
    cluster = Cluster(laboratory, run)
    cluster.is_under_way()
    cluster.launchers[1].send_signal(signal.SIGTERM)  # one is told, and tells the others
    outputs = cluster.outputs()
    assert all("stopped by SIGTERM" in output for output in outputs)
    cluster = Cluster(laboratory, run)
    metrics, weights = cluster.ends_well()
    assert metrics["resumed"] == 1
    assert [len(node["sessions"]) for node in metrics["nodes"]] == [2, 2]
    assert same_weights(weights, expected)


@pytest.mark.parametrize("victim", ["rank", "launcher", "first launcher"])
def test_what_dies_on_one_node_ends_the_run_on_all_with_its_name(laboratory, victim):
    run = using(ALL["shared_memory"], 2, nodes=2, epochs=100_000)
    cluster = Cluster(laboratory, run)
    programs = cluster.is_under_way()
    ranks = [rank for program in programs for rank in children(program)]
    assert len(ranks) == 4
    of_rank = f"worker 3 (rank 3) on node 1 ({HOST}) (process {ranks[3]}) was killed by SIGKILL"
    chosen, said, survivors = {
        "rank": (ranks[3], of_rank, slice(2)),
        "launcher": (programs[1], f"node 1 ({HOST}) is gone", slice(1)),
        "first launcher": (programs[0], f"node 0 ({HOST}) is gone", slice(1, 2)),
    }[victim]
    os.kill(chosen, signal.SIGKILL)
    killed = time.monotonic()
    outputs = cluster.outputs(seconds=10)
    assert patience.is_within(10, killed)
    assert all(said in output for output in outputs[survivors]), outputs
    assert all(launcher.returncode for launcher in cluster.launchers)
    wait_for(lambda: not any(map(alive, ranks)), 5)


def test_a_run_that_diverges_on_two_nodes_says_where(laboratory):
    run = using(ALL["shared_memory"], 2, nodes=2, epochs=20)
    cluster = Cluster(laboratory, vary(run, optimizer=Entry("SGD", "SGD", {"lr": 1e18})))
    outputs = cluster.outputs()
    assert [launcher.returncode for launcher in cluster.launchers] == [0, 0], outputs
    metrics = read_json(cluster.folder / "metrics.json")
    assert metrics["diverged"]["epoch"] == 1
    assert len(metrics["nodes"]) == 2


@pytest.mark.parametrize("silent", [0, 1])
def test_a_node_of_which_nothing_is_heard_ends_the_run(laboratory, silent):
    """As when its power fails: nobody says that a connection is closed."""
    run = using(ALL["ring"], 1, nodes=2, epochs=100_000)
    cluster = Cluster(laboratory, run)
    program = cluster.is_under_way()[silent]
    frozen = [program, *children(program)]
    for process in frozen:
        os.kill(process, signal.SIGSTOP)
    said = f"node {silent} ({HOST}) has been silent for 8 s"
    assert said in patience.ended(cluster.launchers[1 - silent], 12)
    for process in frozen:
        with contextlib.suppress(ProcessLookupError):  # the first of them may have ended the other
            os.kill(process, signal.SIGCONT)
    # Where it writes before it reads, the closed connection is all that it learns.
    gone = f"node {1 - silent} ({HOST}) is gone"
    output = patience.ended(cluster.launchers[silent], 10)
    assert said in output or gone in output


def test_a_worker_that_is_late_after_a_pause_does_not_miss_the_next(laboratory):
    """Nodes are through a pause at different times, and the next one begins on all or on none."""
    model = Entry("big", "mlp", {"hidden": [400, 400]})
    run = using(ALL["ring"], 2, nodes=2, epochs=100_000, model=model)
    cluster = Cluster(laboratory, run, save_every=6e-4, timeout=60.0)
    programs = cluster.is_under_way()
    victim = children(programs[1])[-1]
    for _ in range(3):
        os.kill(victim, signal.SIGSTOP)
        time.sleep(1.3)
        os.kill(victim, signal.SIGCONT)
        time.sleep(0.2)
    cluster.launchers[0].send_signal(signal.SIGTERM)
    signal_time = time.monotonic()
    assert all("stopped by SIGTERM" in output for output in cluster.outputs())
    assert patience.is_within(15, signal_time), "without waiting for those that miss it"


def test_a_rank_that_hangs_is_named_whichever_node_it_is_on(laboratory):
    run = using(ALL["ring"], 2, nodes=2, epochs=100_000)
    cluster = Cluster(laboratory, run, timeout=2.0)
    programs = cluster.is_under_way()
    victim = children(programs[1])[0]
    os.kill(victim, signal.SIGSTOP)
    said = f"worker 2 (rank 2) on node 1 ({HOST}) (process {victim}) is stopped by a signal"
    assert all(said in output for output in cluster.outputs(seconds=15))


def test_a_node_with_other_data_is_refused(laboratory):
    run = using(ALL["ring"], 1, nodes=2)
    other = laboratory.data(Entry("other", "fake", RUN.dataset.options | {"seed": 1}))
    outputs = Cluster(laboratory, run, of_last={"data_folder": other}).outputs()
    assert "node 1 differs from the first one in: the inputs, the targets" in outputs[1]
    assert f"node 1 ({HOST}) is gone" in outputs[0]


def meeting(count, node, file, **how):
    """Meet in a thread; a function that waits for the Nodes."""
    executor = concurrent.futures.ThreadPoolExecutor(1)
    return executor.submit(nodes.meet, count, node, file, **how).result


def test_launchers_find_each_other_and_nobody_else(tmp_path):
    file = tmp_path / "rendezvous.allcores"
    # Of an earlier attempt: somebody else is at that port now.
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        old = {"addresses": ["127.0.0.1"], "port": stranger.getsockname()[1], "token": "old"}
        file.write_text(json.dumps(old))
        other = meeting(3, 2, file)
        caller, _ = stranger.accept()
        caller.close()
        first = meeting(3, 0, file)
        wait_for(lambda: not file.exists() or json.loads(file.read_text()) != old)
    assert stat.filemode(file.stat().st_mode) == "-rw-------"
    address = "127.0.0.1", json.loads(file.read_text())["port"]
    wrong = file.with_name("guessed")
    wrong.write_text(json.dumps(old | {"port": address[1]}))
    with socket.create_connection(address), socket.create_connection(address) as dripping:
        dripping.sendall(b"l")  # the other one says nothing at all
        with pytest.raises(TimeoutError, match="another process is listening there"):
            meeting(3, 1, wrong, seconds=1)()
        last = meeting(3, 1, file)
        met = [first(), last(), other()]
    assert [(member.node, member.interface) for member in met] == [(0, "lo"), (1, "lo"), (2, "lo")]
    assert not file.exists()
    futures = [concurrent.futures.ThreadPoolExecutor(1).submit(member.share) for member in met[1:]]
    met[0].share("to all")
    assert [future.result() for future in futures] == ["to all"] * 2


def test_a_node_that_does_not_come_is_named(tmp_path):
    first, second = (meeting(3, n, tmp_path / "file", seconds=1) for n in (0, 1))
    second()
    with pytest.raises(TimeoutError, match="node 2 of 3 did not join"):
        first()
    with pytest.raises(TimeoutError, match="did not find node 0: there is no"):
        meeting(2, 1, tmp_path / "file", seconds=0.3)()


def test_an_interface_that_is_not_there_is_told_with_those_that_are(tmp_path, monkeypatch):
    monkeypatch.setenv(nodes.INTERFACE, "ib0")
    with pytest.raises(ValueError, match=r"GLOO_SOCKET_IFNAME: found 'ib0'; .* has .*lo"):
        nodes.meet(2, 0, tmp_path / "file")


def test_a_launcher_that_is_gone_before_all_have_come_is_named(tmp_path):
    first, second = (meeting(3, node, tmp_path / "file") for node in (0, 1))
    time.sleep(1)
    last = meeting(3, 2, tmp_path / "file")
    met = first()
    second().close()
    last()
    with pytest.raises(ConnectionError, match=r"node 1 .* is gone"):
        for _ in range(100):
            met.share("to all")
    with pytest.raises(ConnectionError, match=r"node 1 .* is gone"):
        met.collect("of all")


@pytest.mark.parametrize("content", ["", "{}", "[]", "\xff"])
def test_a_file_that_is_none_is_waited_for(tmp_path, content):
    (tmp_path / "file").write_bytes(content.encode("latin-1"))
    with pytest.raises(TimeoutError, match="did not find node 0"):
        meeting(2, 1, tmp_path / "file", seconds=0.3)()


@pytest.mark.parametrize("told", ["-1", "abc", "", "2"])
def test_a_number_that_is_no_nodes_is_refused(laboratory, told):
    run = using(ALL["ring"], 1, nodes=2)
    laboratory.data(run.dataset)
    command = [*train_program(True), *laboratory.arguments(run)]
    said = subprocess.run(
        command, text=True, capture_output=True, env=ENVIRONMENT | {"PMI_RANK": told}
    )
    assert said.returncode == 1
    assert "found none of SLURM_PROCID" in said.stderr
    assert "Traceback" not in said.stderr
