"""Workers that are told to stop, or to save, do so after the same step and lose nothing."""

import math
import multiprocessing
import os
import re
import signal
import struct

import pytest
from conftest import MOBILENET, RUN, same_weights, using
from patience import wait_for
from test_strategies import ALL, RARELY, by_strategy, is_asynchronous

from allcores.parallel.nodes import Link, Nodes
from allcores.parallel.pause import Pause
from allcores.parallel.supervision import Supervisor
from allcores_study.config.run import Entry


def stop(monkeypatch, laboratory, run, number, at, others_wait):
    """Conduct a run that gets a signal when a worker has ended a step.

    Args:
        others_wait: whether they do there, who otherwise may be in another epoch by then.
    """
    due = Pause.due

    def asks_to_stop(self, rank, step):
        if (rank, step) == at:
            os.kill(os.getppid(), number)
        if (rank, step) == at or (others_wait and step == at[1]):
            wait_for(lambda: self.is_going_on)
        return due(self, rank, step)

    with monkeypatch.context() as patched:
        patched.setattr(Pause, "due", asks_to_stop)
        with pytest.raises(KeyboardInterrupt, match=number.name):
            laboratory.trained(run, "interrupted")


@by_strategy(ALL)
def test_a_run_that_is_told_to_stop_in_an_epoch_goes_on_at_that_step(
    laboratory, monkeypatch, capfd, strategy
):
    """Batch norm: each worker has statistics of its own."""
    workers = 1 if is_asynchronous(strategy) else 2
    even = Entry("even", "fake", RUN.dataset.options | {"count": 54})
    run = using(strategy, workers, dataset=even, model=MOBILENET, batch_size=9, epochs=3)
    expected = laboratory.trained(run, "whole")
    # After eight steps, local SGD has just averaged the workers.
    stop(monkeypatch, laboratory, run, signal.SIGTERM, at=(0, 9), others_wait=True)
    metrics, weights = laboratory.trained(run, "interrupted")
    assert re.search(r"resumed after epoch \d of 3 and \d+ of 6 steps", capfd.readouterr().out)
    assert metrics["resumed"] == 1
    assert_same((metrics, weights), expected)


def assert_same(one, other):
    """The same losses of epochs and weights."""
    (metrics, weights), (expected, expected_weights) = one, other
    losses = [[epoch["loss"] for epoch in of_run["epochs"]] for of_run in (metrics, expected)]
    assert losses[0] == losses[1]
    assert same_weights(weights, expected_weights)


DROPOUT = Entry("alexnet", "alexnet", {"width": 0.05})
OTHERS = Entry("drawing", "drawing:Net", {})  # draws from numpy and from Python


@pytest.mark.parametrize(
    ("strategy", "model"), [("serial", DROPOUT), ("rarely", DROPOUT), ("serial", OTHERS)]
)
def test_what_is_drawn_and_what_was_not_pulled_go_on_where_they_were(
    laboratory, monkeypatch, strategy, model
):
    run = using((ALL | {"rarely": RARELY})[strategy], 1, model=model, batch_size=9, epochs=3)
    expected = laboratory.trained(run, "whole")
    stop(monkeypatch, laboratory, run, signal.SIGTERM, at=(0, 9), others_wait=True)
    assert_same(laboratory.trained(run, "interrupted"), expected)


def test_staleness_is_right_after_a_pause_between_epochs(laboratory, monkeypatch):
    run = using(ALL["async_parameter_server"], 1, epochs=3)
    stop(monkeypatch, laboratory, run, signal.SIGTERM, at=(0, 6), others_wait=True)
    metrics, _ = laboratory.trained(run, "interrupted")
    assert metrics["resumed"] == 1
    assert [epoch["staleness"] for epoch in metrics["epochs"]] == [[6]] * 3


@pytest.mark.parametrize("name", ["hogwild", "async_parameter_server"])
def test_workers_that_do_not_wait_for_each_other_stop_after_the_same_step(
    laboratory, monkeypatch, name
):
    run = using(ALL[name], 3, batch_size=4, epochs=5)
    stop(monkeypatch, laboratory, run, signal.SIGUSR1, at=(1, 20), others_wait=False)
    metrics, _ = laboratory.trained(run, "interrupted")
    assert metrics["resumed"] == 1
    staleness = [sum(epoch["staleness"]) for epoch in metrics["epochs"]]
    assert staleness == [3 * 14] * 5, "none is lost"


def test_the_next_pause_begins_when_the_last_is_over_on_every_node():
    ours, theirs = multiprocessing.Pipe()
    link, at_node_1, pause = Link(ours, 1, "n2"), Link(theirs, 0, "n1"), Pause(1)
    nodes = Nodes(2, 0, [link], "127.0.0.1")
    supervisor = Supervisor({}, str, [], pause, nodes, math.inf, save_every=-1)

    def say(*message):
        at_node_1.send(*message)
        supervisor._take(link, *link.receive())
        supervisor._save_or_stop()

    pause.due(0, 3)
    supervisor._save_or_stop()
    assert at_node_1.receive() == ("pause", None)
    say("reached", 7)
    assert at_node_1.receive() == ("pause after", 7)
    assert [pause.due(0, step) for step in (4, 5, 6, 7)] == [False, False, False, True]
    assert pause.over(0) is False
    supervisor._save_or_stop()
    assert not theirs.poll(), "node 1 is still in the last one"
    say("pause over")
    assert at_node_1.receive() == ("pause", None)


@pytest.mark.parametrize("says_done", [False, True])
def test_a_node_that_has_ended_well_is_not_the_cause_of_a_failure(says_done):
    ours, theirs = multiprocessing.Pipe()
    link = Link(ours, 1, "n2")
    supervisor = Supervisor({}, str, [], Pause(1), Nodes(2, 0, [link], "127.0.0.1"), math.inf)
    if says_done:
        Link(theirs, 0, "n1").send("done", None)
    theirs.close()
    assert len(supervisor._complaints()) == (0 if says_done else 1)
    link.is_done = True
    assert supervisor._complaints() == []
    os.close(supervisor.woken)


def test_a_report_that_ends_in_its_middle_is_none():
    """As of a rank that is killed while it sends large results."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    os.write(writer.fileno(), struct.pack("!i", 1000) + b"x" * 10)
    writer.close()
    supervisor = Supervisor({}, str, [], Pause(1), Nodes(1, 0, [], ""), math.inf)
    supervisor.pipes = {reader: 0}
    supervisor._read(reader)
    assert (supervisor.pipes, supervisor.reports) == ({}, {})
    os.close(supervisor.woken)
