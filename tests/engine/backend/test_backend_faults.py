"""The backend shm after faults, from several threads, and what its collectives return."""

import contextlib
import os
import signal
import sys
import threading
import time
from datetime import timedelta

import patience
import pytest
import torch
import torch.distributed as dist
from test_backend import ranks

from allcores.parallel.exchange import LostRankError


def given_up(rank, end):
    dist.all_reduce(torch.ones(1))
    dist.group.WORLD.set_timeout(timedelta(seconds=1))
    if rank == 1:
        patience.wait_for(end.exists)
    for _ in range(3):  # also those that could begin with what the first has left
        with pytest.raises(LostRankError):
            dist.all_reduce(torch.ones(1))
        end.touch()


def test_a_group_that_was_given_up_says_so_ever_after(tmp_path):
    ranks(2, given_up, tmp_path, tmp_path / "end")


def by_threads(rank):
    sys.setswitchinterval(1e-6)  # threads interrupt each other everywhere
    wrong = []

    def reduce(times=300):
        for _ in range(times):
            vector = torch.ones(50_000)
            dist.all_reduce(vector)
            wrong.append(bool((vector != 2).any()))

    threads = [threading.Thread(target=reduce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(wrong)


def test_threads_of_a_process_take_turns(tmp_path):
    ranks(2, by_threads, tmp_path)


def as_work(rank):
    vector = torch.ones(3)
    work = dist.all_reduce(vector, async_op=True)
    assert work.wait(timedelta(seconds=3)) and work.is_completed()
    assert work.get_future().then(lambda future: 2 * future.value()[0]).wait().tolist() == [4.0] * 3
    with torch.inference_mode():
        group = dist.new_group(backend="shm")
        dist.all_reduce(torch.ones(1), group=group)
    dist.all_reduce(vector, group=group)
    for output, inputs in ((4, [1, 1]), (2, [4, 4]), (1, [1])):
        with pytest.raises((RuntimeError, ValueError)):
            dist.reduce_scatter(torch.zeros(output), [torch.ones(length) for length in inputs])


def test_what_is_returned_can_be_waited_for(tmp_path):
    ranks(2, as_work, tmp_path)


def leave(rank, end):
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        dist.group.WORLD.shutdown()  # as destroy_process_group() does
        patience.wait_for(end.exists)
        return
    with pytest.raises(LostRankError, match="rank 1 has ended or destroyed the group"):
        dist.all_reduce(torch.ones(1))
    end.touch()


def test_a_rank_that_leaves_is_not_waited_for(tmp_path):
    ranks(2, leave, tmp_path, tmp_path / "end")


def late_for_gloo(rank, end):
    dist.all_reduce(torch.ones(1))
    dist.group.WORLD.set_timeout(timedelta(seconds=1))
    if rank == 1:
        patience.wait_for(end.exists)
    for collective in (dist.all_to_all_single, dist.all_to_all_single):
        with pytest.raises(LostRankError):
            collective(torch.zeros(2), torch.ones(2))
        end.touch()
    with pytest.raises(LostRankError):
        dist.all_reduce(torch.ones(1))
    with pytest.raises(LostRankError):
        dist.send(torch.ones(1), 1 - rank)


def test_what_gloo_does_is_given_up_with_the_group(tmp_path):
    ranks(2, late_for_gloo, tmp_path, tmp_path / "end")


def different(rank):
    one, zeros = torch.ones(2), torch.zeros(2)
    bools = torch.ones(2, dtype=torch.bool)
    for calls, message in (
        ((lambda: dist.all_reduce(one), lambda: dist.all_to_all_single(zeros, one)), "all_to_all"),
        ((lambda: dist.all_reduce(one), lambda: dist.all_reduce(bools)), "all_reduce"),
        ((lambda: dist.all_reduce(one), lambda: dist.all_reduce(one, dist.ReduceOp.MAX)), "by MAX"),
    ):
        with pytest.raises(ValueError, match=message):
            calls[rank]()


def test_different_calls_are_named_where_gloo_makes_one(tmp_path):
    ranks(2, different, tmp_path)


def of_one_element(rank):
    column = torch.full((1, 2), float(rank))[:, 0]  # contiguous, with a stride of 2
    dist.broadcast(column, 1)
    assert float(column) == 1
    found = [torch.zeros(1), torch.zeros(1)]
    dist.all_gather(found, torch.full((1, 2), float(rank))[:, 0])
    assert torch.cat(found).tolist() == [0, 1]
    flags = torch.tensor([rank == 0])
    dist.all_reduce_coalesced([flags], dist.ReduceOp.MAX)
    assert flags.item()


def test_single_elements_and_flags_are_taken(tmp_path):
    ranks(2, of_one_element, tmp_path)


def fail_in_gloo(rank):
    value = torch.ones(1, dtype=torch.bool)
    dist.all_reduce(value)
    with pytest.raises(RuntimeError):
        dist.all_reduce(torch.ones(1), dist.ReduceOp.BAND)  # gloo has no bits of floats
    with pytest.raises(LostRankError, match="group is unusable"):
        dist.all_reduce(value)


def test_a_collective_that_fails_in_gloo_ends_the_group(tmp_path):
    ranks(2, fail_in_gloo, tmp_path)


def with_wrong_roots(rank):
    for call in (dist.broadcast, dist.reduce):
        with pytest.raises(ValueError, match="found the root 9; expected a rank below 2"):
            call(torch.ones(1), 9)
    value = torch.ones(1)
    dist.all_reduce(value)
    assert value == 2


def test_a_root_that_is_no_rank_is_refused(tmp_path):
    ranks(2, with_wrong_roots, tmp_path)


def destroyed_by_another_thread(rank, end):
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        patience.wait_for(end.exists)
        return
    group = dist.group.WORLD
    threading.Timer(0.5, group.shutdown).start()
    with pytest.raises(LostRankError, match="the process group was destroyed"):
        dist.all_reduce(torch.ones(100_000))
    end.touch()
    os._exit(0)


def test_a_group_that_another_thread_destroys_does_not_crash(tmp_path):
    ranks(2, destroyed_by_another_thread, tmp_path, tmp_path / "end")


def interrupted(rank, end):
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        patience.wait_for(end.exists)
        with pytest.raises(LostRankError):
            dist.all_reduce(torch.ones(2_000_000))
        return

    def handle(number, frame):
        with contextlib.suppress(LostRankError):  # a program that reports from a handler
            dist.all_reduce(torch.zeros(1))

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    values = torch.ones(2_000_000)
    with pytest.raises(LostRankError):
        dist.all_reduce(values)
    end.touch()


def test_a_collective_in_a_handler_of_a_signal_ends_the_group_and_writes_nowhere_else(tmp_path):
    ranks(2, interrupted, tmp_path, tmp_path / "end")


def signalled(rank):
    dist.all_reduce(torch.ones(1))
    dist.group.WORLD.set_timeout(timedelta(seconds=30))
    if rank == 1:
        time.sleep(3)
    else:
        signal.signal(signal.SIGALRM, lambda number, frame: None)
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)  # 600 in three seconds
    values = torch.ones(3)
    dist.all_reduce(values)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert values.tolist() == [2.0] * 3


def test_signals_do_not_use_up_the_timeout(tmp_path):
    ranks(2, signalled, tmp_path)


def spread(rank):
    """By gloo, which takes any memory for contiguous."""
    dist.all_reduce(torch.ones(1))
    base = torch.zeros(8, dtype=torch.bool)
    base[4 * rank + 2] = True
    dist.all_reduce(base[::2], dist.ReduceOp.MAX)
    assert base[::2].tolist() == [False, True, False, True]
    assert not base[1::2].any(), "what lies between is not written"
    whole = torch.zeros(2, 2)
    dist.scatter(whole.t()[0], [torch.tensor([1.0, 2.0])] * 2 if rank == 0 else None)
    assert whole.tolist() == [[1, 0], [2, 0]]
    sent, got = torch.arange(8)[::2] + 10 * rank, torch.zeros(8, dtype=torch.long)
    dist.all_to_all_single(got[::2], sent)
    assert got[::2].tolist() == [[0, 2, 10, 12], [4, 6, 14, 16]][rank] and not got[1::2].any()
    negative = torch.full((3,), 1 + 1j).conj().imag
    dist.all_reduce(negative)
    assert negative.tolist() == [-2.0] * 3
    gathered = [torch.zeros(2, 2).t()[0] for _ in range(2)] if rank == 0 else None
    dist.gather(torch.arange(4.0)[rank::2], gathered)
    assert rank or [one.tolist() for one in gathered] == [[0, 2], [1, 3]]
    if rank == 0:
        dist.send(torch.arange(8.0)[::2], 1)
        return
    with pytest.raises(ValueError, match="found a tensor that is not contiguous"):
        dist.recv(torch.zeros(8)[::2], 0)
    received = torch.zeros(4)
    dist.recv(received, 0)
    assert received.tolist() == [0, 2, 4, 6]


def test_what_goes_to_gloo_may_lie_anywhere_in_memory(tmp_path):
    ranks(2, spread, tmp_path)
