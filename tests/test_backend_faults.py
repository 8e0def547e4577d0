"""The backend shm after faults, from several threads, and what its collectives return."""

import sys
import threading
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
