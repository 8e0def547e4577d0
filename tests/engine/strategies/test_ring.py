"""The ring's average, held against gloo's all_reduce."""

import pytest
import torch
import torch.distributed as dist

from allcores.parallel import launch
from allcores.strategies import ring


@pytest.mark.parametrize(
    ("workers", "piece_bytes"),
    [(1, ring.PIECE_BYTES), (2, ring.PIECE_BYTES), (3, 1001), (6, ring.PIECE_BYTES)],
)
def test_the_ring_equals_all_reduce(tmp_path, workers, piece_bytes):
    lengths = (0, 1, 2, workers - 1, workers, workers + 1, 10**5 + 3)

    def target(world):
        random = torch.Generator().manual_seed(world.rank)
        for length in lengths:
            for dtype in (torch.float32, torch.float64):
                vector = torch.randn(length, generator=random, dtype=dtype)
                expected = vector.clone()
                dist.all_reduce(expected)
                average = ring.RingAverage(vector, world, piece_bytes=piece_bytes)
                for _ in range(2):  # what was left in its memory must not matter
                    average.reduce_scatter()
                    average.all_gather()
                    torch.testing.assert_close(vector, expected / workers)
                all_have = [torch.empty_like(vector) for _ in range(workers)]
                dist.all_gather(all_have, vector)
                assert all(torch.equal(theirs, vector) for theirs in all_have)
        (tmp_path / str(world.rank)).touch()

    launch.run_ranks(target, workers, 0, 1)
    assert len(list(tmp_path.iterdir())) == workers


def test_after_reduce_scatter_each_worker_has_one_finished_chunk():
    def target(world):
        vector = torch.arange(7.0) * (world.rank + 1)
        average = ring.RingAverage(vector, world)
        average.reduce_scatter()
        finished = torch.arange(7.0).tensor_split(3)[(world.rank + 1) % 3] * 2
        torch.testing.assert_close(vector.tensor_split(3)[(world.rank + 1) % 3], finished)
        average.all_gather()

    launch.run_ranks(target, 3, 0, 1)


def test_no_memory_is_taken_per_step():
    def target(world):
        average = ring.RingAverage(torch.zeros(300_000), world)
        average.reduce_scatter()
        average.all_gather()
        with torch.profiler.profile(profile_memory=True) as profile:
            average.reduce_scatter()
            average.all_gather()
        taken = [event.self_cpu_memory_usage for event in profile.key_averages()]
        assert sum(size for size in taken if size > 0) < 1000

    launch.run_ranks(target, 2, 0, 1)
