"""One training over several nodes: launchers that find each other, and the numbers of one machine.

The nodes here are launchers on one machine, each with its ranks, as a cluster would start them.
"""

import os
import signal
import subprocess
import time

import pytest
import torch
from conftest import ENVIRONMENT, LENET, RUN, same_weights, train_program, using, vary
from test_strategies import ALL, SYNCHRONOUS, alive, children, program_of, wait_for

from allcores.study import registry
from allcores.study.metrics_file import read_metrics
from allcores.study.run import Choice

HOST = os.uname().nodename
OVER_NODES = {
    name: choice
    for name, choice in ALL.items()
    if not registry.strategies()[choice.name].constants.get("one_worker")
    and not registry.strategies()[choice.name].constants.get("one_node")
}


class Cluster:
    """The launchers of one run, as processes."""

    def __init__(self, laboratory, run, *more, name="run", interface="lo"):
        laboratory.data(run.dataset)
        self.folder, self.checkpoints = laboratory.folder / name, laboratory.checkpoints(name)
        command = [*train_program(True), *laboratory.arguments(run, name), *more]
        self.launchers = [
            subprocess.Popen(
                [*command, f"--interface={interface}"],
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=laboratory.folder,
                env=ENVIRONMENT | {"PMI_RANK": str(node)},
            )
            for node in range(run.nodes)
        ]

    def outputs(self, seconds=100):
        return [launcher.communicate(timeout=seconds)[0] for launcher in self.launchers]

    def ends_well(self):
        outputs = self.outputs()
        assert [launcher.returncode for launcher in self.launchers] == [0] * len(outputs), outputs
        return read_metrics(self.folder / "metrics.json"), torch.load(self.folder / "weights.pt")

    def is_under_way(self):
        wait_for((self.checkpoints / "latest.allcores").exists)
        return [program_of(launcher.pid) for launcher in self.launchers]


def differ(weights, others):
    return max(float((weights[key] - others[key]).abs().max()) for key in weights)


@pytest.mark.parametrize("choice", SYNCHRONOUS.values(), ids=SYNCHRONOUS)
def test_two_nodes_of_two_workers_train_as_four_workers_and_as_serial(laboratory, choice):
    if choice.name not in {each.name for each in OVER_NODES.values()}:
        pytest.skip("it takes one worker")
    run = using(choice, 2, nodes=2, model=LENET, epochs=3)
    metrics, weights = Cluster(laboratory, run).ends_well()
    assert (run.workers, metrics["settings"]["nodes"], len(metrics["nodes"])) == (4, 2, 2)
    for other in (using(choice, 4, model=LENET, epochs=3), vary(model=LENET, epochs=3)):
        _, expected = laboratory.conduct(other, f"of_{other.workers}")
        assert differ(weights, expected) < 1e-5


@pytest.mark.parametrize("choice", OVER_NODES.values(), ids=OVER_NODES)
def test_every_strategy_trains_on_three_nodes(laboratory, choice):
    run = using(choice, 1, nodes=3, epochs=2)
    metrics, _ = Cluster(laboratory, run).ends_well()
    assert len(metrics["epochs"]) == 2
    assert metrics["cpu_seconds"] == pytest.approx(
        sum(s["cpu_seconds"] for node in metrics["nodes"] for s in node["sessions"])
    )


@pytest.mark.parametrize("name", ["shared_memory", "ddp", "ring", "parameter_server", "local_sgd"])
def test_a_run_on_two_nodes_that_is_told_to_stop_goes_on_with_the_same_bits(laboratory, name):
    many = Choice("many", "synthetic", RUN.dataset.options | {"count": 4000})
    run = using(ALL[name], 2, nodes=2, dataset=many, epochs=2, batch_size=8)
    run = vary(run, optimizer=Choice("SGD", "SGD", {"lr": 0.001, "momentum": 0.9}))
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
    chosen = {"rank": ranks[3], "launcher": programs[1], "first launcher": programs[0]}[victim]
    os.kill(chosen, signal.SIGKILL)
    killed = time.monotonic()
    outputs = cluster.outputs(seconds=10)
    assert time.monotonic() - killed < 10
    said = {
        "rank": f"worker 3 (rank 3) on node 1 ({HOST}) (process {chosen}) was killed by SIGKILL",
        "launcher": f"node 1 ({HOST}) is gone",
        "first launcher": f"node 0 ({HOST}) is gone",
    }[victim]
    told = {"rank": outputs, "launcher": outputs[:1], "first launcher": outputs[1:]}[victim]
    assert all(said in output for output in told), outputs
    assert all(launcher.returncode for launcher in cluster.launchers)
    wait_for(lambda: not any(map(alive, ranks)), seconds=5)
