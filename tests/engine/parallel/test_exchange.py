"""Nobody passes before all have come, and nobody waits forever."""

import mmap
import random
import shutil
import time
from multiprocessing import get_context

import pytest

from allcores.parallel import exchange
from allcores.parallel.exchange import Exchange, LostRankError, size_of

ROUNDS = 300


def exchanges(parties, spin, timeout):
    """Each rank's side."""
    memory = mmap.mmap(-1, size_of(parties))
    return [
        Exchange(memory, range(parties), rank, spin=spin, timeout=timeout)
        for rank in range(parties)
    ]


def in_processes(life, count):
    """Exit codes of `count` forked processes that call life(rank)."""
    processes = [get_context("fork").Process(target=life, args=(rank,)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


@pytest.mark.parametrize("spin", [0, 1e-3])
@pytest.mark.parametrize("parties", [1, 2, 3, 5, 8])
def test_nobody_passes_before_all_have_come(parties, spin):
    sides = exchanges(parties, spin, timeout=60)
    written = memoryview(mmap.mmap(-1, 8 * parties)).cast("q")

    def life(rank):
        chance = random.Random(rank)
        for number in range(1, ROUNDS + 1):
            if chance.random() < 0.05:
                time.sleep(chance.random() / 200)
            written[rank] = number
            sides[rank].meet()
            assert all(value == number for value in written)
            sides[rank].meet()

    assert in_processes(life, parties) == [0] * parties


def test_who_does_not_come_is_named():
    sides = exchanges(4, 0, timeout=1)

    def life(rank):
        sides[rank].meet()
        if rank in (1, 3):
            return
        with pytest.raises(LostRankError, match="rank 1, 3 did not arrive"):
            sides[rank].meet()

    assert in_processes(life, 4) == [0] * 4


@pytest.mark.parametrize("spin", [0, 1e-3])
def test_a_long_wait_takes_no_core(spin):
    sides = exchanges(2, spin, timeout=60)

    def life(rank):
        if rank == 1:
            time.sleep(1)
        began = time.process_time()
        sides[rank].meet()
        assert time.process_time() - began < 0.2

    assert in_processes(life, 2) == [0, 0]


def test_without_a_compiler_it_is_said_what_was_tried(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "no_compiler")
    monkeypatch.setattr(exchange, "ZIG", ["no_zig"])
    with pytest.raises(OSError, match=r"(?s)exchange.c was not compiled:.*no_compiler.*no_zig"):
        exchange._compiled(tmp_path)


def test_a_compiler_that_fails_leaves_it_to_the_next(monkeypatch, tmp_path):
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    monkeypatch.setenv("CC", "false")
    monkeypatch.setattr(exchange, "ZIG", ["cc"])
    assert exchange._compiled(tmp_path).exists()
