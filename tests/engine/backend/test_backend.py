"""The backend `shm` of torch.distributed: what gloo computes, and how it ends."""

import contextlib
import importlib.util
import itertools
import os
import re
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import patience
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from conftest import ENVIRONMENT, ROOT
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from allcores.parallel import joining, process_group
from allcores.parallel.exchange import LostRankError

OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.uint8)
# What else runs by a backend that it is told -> the packages that it needs.
FRAMEWORKS = {
    "accelerate": ["accelerate"],
    "lightning": ["lightning"],
    "transformers": ["transformers", "accelerate"],
    "tensor_parallel": [],
}
LENGTHS = (0, 1, 7, 1000, 40_000, 600_001)  # in one barrier, in two, in several blocks


def ranks(count, function, folder, *arguments):
    """Call function(rank, *arguments) as each rank of a group of the backend, in processes that
    have nothing in common but a file, and the one that they are forked from, which only imports."""
    multiprocessing.set_forkserver_preload([__name__])
    file = folder / f"store{len(list(folder.glob('store*')))}"
    arguments = (function, file, count, arguments)
    with pytest.MonkeyPatch.context() as patched:
        # Else the one that they are forked from does not find this module, and imports nothing.
        patched.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        multiprocessing.start_processes(_join, arguments, count, start_method="forkserver")


def _join(rank, function, file, count, arguments):
    torch.set_num_threads(1)
    process_group.register()
    dist.init_process_group(
        "shm",
        init_method=f"file://{file}",
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=patience.seconds(60)),
    )
    function(rank, *arguments)
    dist.destroy_process_group()


def spinning(rank, pins, folder):
    os.sched_setaffinity(0, {pins[rank]})
    group = process_group.SharedMemoryGroup(
        dist.FileStore(str(folder / "store_of_pinned"), len(pins)), rank, len(pins), timedelta(60)
    )
    assert bool(group.exchange.spin) == (len({*pins}) == len(pins))
    group.barrier().wait()  # none ends before the others have seen its cores
    group.shutdown()


@pytest.mark.parametrize("are_apart", [True, False])
def test_ranks_that_are_pinned_spin_where_each_has_a_core(tmp_path, are_apart):
    """A rank that is pinned sees one core: those of the others count as well."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("needs two cores")
    ranks(2, spinning, tmp_path, cores if are_apart else [cores[0]] * 2, tmp_path)


def reductions(rank):
    gloo = dist.new_group(backend="gloo")
    torch.manual_seed(rank)
    for dtype, length, name in itertools.product(DTYPES, LENGTHS, OPERATIONS):
        operation = getattr(dist.ReduceOp, name)
        # Small whole numbers, whose sums and products every dtype and order gives exactly.
        ours = torch.randint(1, 3, (length,)).to(dtype)
        theirs = ours.double() if dtype.is_floating_point else ours.clone()
        if name in ("BAND", "BOR", "BXOR") and dtype.is_floating_point:
            continue
        if name == "AVG":
            dist.all_reduce(theirs, group=gloo)
            rounding = None if dtype.is_floating_point else "trunc"  # as NCCL does
            theirs.div_(dist.get_world_size(), rounding_mode=rounding)
        else:
            dist.all_reduce(theirs, operation, group=gloo)
        work = dist.all_reduce(ours, operation, async_op=True)
        assert work.wait()
        assert torch.equal(ours, theirs.to(dtype)), (dtype, length, name)
    with pytest.raises((RuntimeError, ValueError)):
        dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_reductions_give_what_gloo_gives(tmp_path, count):
    ranks(count, reductions, tmp_path)


def special(rank, dtype, length=5000):
    """Numbers of every size, and for floats what is not a number or infinite."""
    generator = torch.Generator().manual_seed(rank)
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return torch.randint(limits.min, limits.max, (length,), dtype=dtype, generator=generator)
    sizes = torch.randint(-30, 20, (length,), generator=generator)
    values = torch.randn(length, generator=generator).double() * 2.0**sizes
    values[torch.randperm(length, generator=generator)[:60]] = (
        torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, 65519.0, 65520.0])
        .repeat(10)
        .double()
    )
    return values.to(dtype)


def exact(rank):
    """The same bits as the ranks' tensors combined by torch one after the other, from rank 0 on;
    16-bit floats as 32-bit ones, rounded once."""
    size = dist.get_world_size()
    combine = {"SUM": torch.add, "AVG": torch.add, "PRODUCT": torch.mul}
    combine |= {"MIN": torch.minimum, "MAX": torch.maximum, "BXOR": torch.bitwise_xor}
    for dtype, name in itertools.product((*DTYPES, torch.int8, torch.int16, torch.int64), combine):
        if name == "BXOR" and dtype.is_floating_point:
            continue
        wide = torch.float32 if dtype.itemsize == 2 and dtype.is_floating_point else dtype
        expected = special(0, dtype).to(wide)
        for other in range(1, size):
            expected = combine[name](expected, special(other, dtype).to(wide))
        if name == "AVG":
            expected.div_(size, rounding_mode=None if dtype.is_floating_point else "trunc")
        for length in (1, 777, 5000):  # combined by each rank, and in slices
            ours = special(rank, dtype)[:length]
            dist.all_reduce(ours, getattr(dist.ReduceOp, name))
            torch.testing.assert_close(
                ours, expected[:length].to(dtype), rtol=0, atol=0, equal_nan=True
            )


def test_reductions_have_the_bits_of_torch_in_the_order_of_ranks(tmp_path):
    ranks(3, exact, tmp_path)


def collectives(rank):
    size, gloo = dist.get_world_size(), dist.new_group(backend="gloo")

    def both(call):
        """What a collective gives here and by gloo."""
        return call(None), call(gloo)

    torch.manual_seed(rank)
    for shape in ((), (0,), (5,), (3, 4), (300_000,)):
        mine = torch.randn(shape)

        def gathered(group, mine=mine):
            outputs = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(outputs, mine, group=group)
            return torch.stack(outputs)

        def broadcast(group, mine=mine):
            copy = mine.clone()
            dist.broadcast(copy, size - 1, group=group)
            return copy

        def reduced(group, mine=mine):
            copy = mine.clone()
            dist.reduce(copy, 0, group=group)
            return copy if rank == 0 else mine

        for call in (gathered, broadcast, reduced):
            ours, theirs = both(call)
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    parts = [torch.randn(7) for _ in range(size)]

    def scattered(group):
        output = torch.empty(7)
        dist.reduce_scatter_tensor(output, torch.cat(parts), group=group)
        return output

    def listed(group):
        output = torch.empty(7)
        dist.reduce_scatter(output, parts, group=group)
        return output

    def joined(group):
        output = torch.empty(7 * size)
        dist.all_gather_into_tensor(output, parts[0], group=group)
        return output

    for call in (scattered, listed, joined):
        ours, theirs = both(call)
        torch.testing.assert_close(ours, theirs)
    turned = torch.randn(4, 3).t()
    ours, theirs = turned.clone().t().contiguous().t(), turned.contiguous()
    assert not ours.is_contiguous()
    dist.all_reduce(ours)
    dist.all_reduce(theirs, group=gloo)
    torch.testing.assert_close(ours, theirs)
    values = [None] * size
    dist.all_gather_object(values, {"rank": rank})
    assert [value["rank"] for value in values] == list(range(size))
    if rank == 0:
        dist.send(torch.ones(2), 1)
    elif rank == 1:
        assert dist.recv(torch.zeros(2)) == 0
    dist.barrier()


@pytest.mark.parametrize("count", [2, 3])
def test_collectives_give_what_gloo_gives(tmp_path, count):
    ranks(count, collectives, tmp_path)


def gradients_of(rank, backend):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(50, 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Linear(300, 3))
    model = DistributedDataParallel(net, process_group=dist.new_group(backend=backend))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(rank)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 50)).square().mean().backward()
        optimizer.step()
    return torch.cat([weight.detach().flatten() for weight in net.parameters()])


def compare_ddp(rank):
    ours, theirs = gradients_of(rank, "shm"), gradients_of(rank, "gloo")
    if dist.get_world_size() == 2:
        assert torch.equal(ours, theirs)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    assert torch.equal(ours, gradients_of(rank, "shm"))


@pytest.mark.parametrize("count", [2, 3])
def test_ddp_trains_to_the_weights_of_gloo(tmp_path, count):
    ranks(count, compare_ddp, tmp_path)


def on_two_machines(rank):
    """Ranks 0 and 2 say that they are on one machine, 1 on another, before the group is made."""
    joining.machine = lambda: f"machine {rank % 2}"
    group = dist.new_group(backend="shm")
    gloo = dist.new_group(backend="gloo")
    torch.manual_seed(rank)
    for length, operation in itertools.product((1, 40_000, 600_001), ("SUM", "AVG", "MAX")):
        ours = torch.randint(1, 9, (length,)).double()
        theirs = ours.clone()
        dist.all_reduce(ours, getattr(dist.ReduceOp, operation), group=group)
        if operation == "AVG":
            dist.all_reduce(theirs, group=gloo)
            theirs /= dist.get_world_size()
        else:
            dist.all_reduce(theirs, getattr(dist.ReduceOp, operation), group=gloo)
        assert torch.equal(ours, theirs), (length, operation)
    for root in range(3):
        for dtype in (torch.float32, torch.int16, torch.float8_e4m3fn):
            value = torch.full((300_000,), float(rank)).to(dtype)
            dist.broadcast(value, root, group=group)
            assert (value.float() == root).all()
    half = torch.tensor([40_000.0], dtype=torch.float16)
    dist.all_reduce(half, dist.ReduceOp.AVG, group=group)
    assert half == 40_000, "the sum is no float16"
    output = torch.zeros(2)
    dist.reduce_scatter_tensor(output, torch.arange(6.0) + rank, group=group)
    assert output.tolist() == [3 * (2 * rank + k) + 3 for k in (0, 1)]
    everything = [torch.zeros(1) for _ in range(3)]
    dist.all_gather(everything, torch.tensor([float(rank)]), group=group)
    assert torch.cat(everything).tolist() == [0, 1, 2]
    dist.barrier(group)


def test_machines_exchange_by_their_first_ranks(tmp_path):
    ranks(3, on_two_machines, tmp_path)


def mismatched(rank):
    with pytest.raises(ValueError, match=r"all_reduce\(\) of 3 torch.float32") as found:
        dist.all_reduce(torch.ones(3 + rank))
    assert "all_reduce() of 4 torch.float32" in str(found.value)
    calls = (dist.barrier, lambda: dist.all_reduce(torch.ones(1)))
    with pytest.raises(ValueError, match=r"barrier\(\)"):
        calls[rank]()
    with pytest.raises(ValueError, match="expected one that is 2 times as long"):
        dist.all_gather_into_tensor(torch.ones(5), torch.ones(2))
    value = torch.ones(1)
    dist.all_reduce(value)
    assert value == 2


def test_different_calls_are_named(tmp_path):
    ranks(2, mismatched, tmp_path)


def forked(rank):
    if child := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    else:
        try:
            for call in (dist.barrier, lambda: dist.all_reduce(torch.ones(1))):
                with pytest.raises(RuntimeError, match="was forked"):
                    call()
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)


def test_a_fork_is_told(tmp_path):
    ranks(1, forked, tmp_path)


def left_alone(rank, way, end):
    dist.all_reduce(torch.ones(1))
    if rank == 1 and way == "dead":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1:
        patience.wait_for(end.exists)
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which torch sends as soon as rank 1 is dead
    limit, expected = 30, "rank 1 has ended"
    if way == "hanging":
        limit, expected = 2, "rank 1 did not arrive within the timeout of 2 s"
    dist.group.WORLD.set_timeout(timedelta(seconds=limit))
    with pytest.raises(LostRankError, match=expected):
        dist.all_reduce(torch.ones(1))
    end.touch()
    os._exit(0)


@pytest.mark.parametrize("way", ["dead", "hanging"])
def test_the_rank_that_is_lost_is_named(tmp_path, way):
    killed = pytest.raises(multiprocessing.ProcessExitedException, match="SIGKILL")
    with killed if way == "dead" else contextlib.nullcontext():
        ranks(2, left_alone, tmp_path, way, tmp_path / "end")
    assert (tmp_path / "end").exists()


def made_and_destroyed(rank):
    def open_files():
        return len(list(Path("/proc/self/fd").iterdir()))

    counts = []
    for _ in range(30):
        group = dist.new_group(backend="shm")
        dist.all_reduce(torch.ones(300_000), group=group)
        dist.destroy_process_group(group)
        del group
        counts.append(open_files())
    assert counts[-1] <= counts[4], counts


def test_groups_leave_nothing(tmp_path):
    ranks(2, made_and_destroyed, tmp_path)
    assert not list(Path("/dev/shm").glob("*allcores*"))


@pytest.mark.parametrize(
    "program",
    [
        "ddp/train",
        "frameworks/with_fsdp2",
        *(pytest.param(f"frameworks/with_{name}", marks=pytest.mark.long) for name in FRAMEWORKS),
    ],
)
def test_an_example_under_torchrun_gives_the_same_loss_by_either_backend(program):
    for package in FRAMEWORKS.get(program.removeprefix("frameworks/with_"), ()):
        # Not imported here: Lightning needs a torchvision that can be imported, see the example.
        if not importlib.util.find_spec(package):
            pytest.skip(f"make soak installs {package}")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    losses = set()
    for backend in ("shm", "gloo"):
        said = subprocess.run(
            [*torchrun, ROOT / "examples" / f"{program}.py", backend],
            env=ENVIRONMENT | {"OMP_NUM_THREADS": "1"},
            text=True,
            capture_output=True,
        )
        assert said.returncode == 0, said.stderr
        losses.add(re.search(rf"^{backend}: loss ([\d.]+)", said.stdout, re.MULTILINE)[1])
    assert len(losses) == 1


def built_on_groups(rank):
    """A step of each of what torch builds on process groups."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.nn.functional import all_reduce
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def step(model):
        model(torch.randn(4, 8)).sum().backward()

    hooked = DistributedDataParallel(nn.Linear(8, 2))
    hooked.register_comm_hook(None, default_hooks.fp16_compress_hook)
    step(hooked)
    uneven = DistributedDataParallel(nn.Linear(8, 2))
    with uneven.join():
        for _ in range(1 + rank):
            step(uneven)
    alone = nn.Linear(8, 2)
    optimizer = ZeroRedundancyOptimizer(alone.parameters(), torch.optim.Adam, lr=0.1)
    step(alone)
    optimizer.step()
    step(FullyShardedDataParallel(nn.Linear(8, 2), device_id=torch.device("cpu")))
    sharded = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 2))
    fully_shard(sharded, mesh=init_device_mesh("cpu", (2,)))
    step(sharded)
    weight = torch.ones(3, requires_grad=True)
    all_reduce(weight * (rank + 1)).sum().backward()
    assert weight.grad.tolist() == [2.0 * (rank + 1)] * 3
    received = [None]
    dist.scatter_object_list(received, [{"to": 0}, {"to": 1}] if rank == 0 else [None, None])
    assert received == [{"to": rank}]
    whole = torch.empty(4)
    dist.all_to_all_single(whole, torch.arange(4.0) + 10 * rank)
    assert whole.tolist() == [2.0 * rank, 2.0 * rank + 1, 10 + 2.0 * rank, 11 + 2.0 * rank]


def test_what_torch_builds_on_groups_runs(tmp_path):
    ranks(2, built_on_groups, tmp_path)
