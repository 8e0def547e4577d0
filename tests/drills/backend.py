"""Groups of the backend shm, made and destroyed; and ranks of a DDP training that are killed.

    python tests/drills/backend.py --groups 1000 --kills 200 --markdown results/backend.md

Nothing may be left: no file, descriptor, process or page; and the ranks that live have to end at
once, with the number of the one that died.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import torch
import torch.distributed as dist

import allcores.backend  # noqa: F401
from allcores.parallel.exchange import LostRankError

RANKS = 3
# Seconds: after which a rank is killed at the latest, and until which the others have to be gone.
MOMENTS, LIMIT = 1.0, 10.0


def begin(rank, size, folder):
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "store"), size)
    dist.init_process_group("shm", store=store, rank=rank, world_size=size)


def held():
    """(open files, MB of memory) of this process, and how many names there are in /dev/shm."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    names = len(list(Path("/dev/shm").iterdir()))
    return len(list(Path("/proc/self/fd").iterdir())), pages * 4096 / 1e6, names


def make_groups(rank, folder, count, pipe):
    begin(rank, 2, folder)
    for number in range(count):
        group = dist.new_group(backend="shm")
        dist.all_reduce(torch.ones(1000), group=group)
        dist.destroy_process_group(group)
        del group
        if number in (count // 10, count - 1):
            pipe.send(held())
    dist.destroy_process_group()


def groups(count):
    """What two ranks hold after a tenth of `count` groups, and after all."""
    with tempfile.TemporaryDirectory() as folder:
        fork = get_context("fork")
        ends = [fork.Pipe(duplex=False) for _ in range(2)]
        ranks = [
            fork.Process(target=make_groups, args=(rank, folder, count, end))
            for rank, (_, end) in enumerate(ends)
        ]
        for rank in ranks:
            rank.start()
        found = [[pipe.recv() for _ in range(2)] for pipe, _ in ends]
        for rank in ranks:
            rank.join()
        assert all(rank.exitcode == 0 for rank in ranks)
    return found


def train(rank, folder, pipe):
    """Train until somebody dies; report what was said, and when."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        begin(rank, RANKS, folder)
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
        )
        pipe.send("trains")
        while True:
            model(torch.randn(16, 64)).square().mean().backward()
    except (LostRankError, RuntimeError) as error:
        pipe.send((str(error), time.time()))
    os._exit(0)


def kill_one(random):
    """Kill one of the ranks; returns (seconds until the others had ended, what they said)."""
    with tempfile.TemporaryDirectory() as folder:
        fork = get_context("fork")
        ends = [fork.Pipe(duplex=False) for _ in range(RANKS)]
        ranks = [
            fork.Process(target=train, args=(rank, folder, end))
            for rank, (_, end) in enumerate(ends)
        ]
        for rank in ranks:
            rank.start()
        for pipe, _ in ends:
            assert pipe.recv() == "trains"
        time.sleep(random.random() * MOMENTS)
        victim = random.randrange(RANKS)
        killed = time.time()
        ranks[victim].kill()
        said, last = [], 0.0
        for number, (pipe, _) in enumerate(ends):
            if number != victim:
                if not pipe.poll(LIMIT):
                    return LIMIT, victim, [f"rank {number} hangs"]
                text, when = pipe.recv()
                said.append(text)
                last = max(last, when - killed)
        for rank in ranks:
            rank.join(LIMIT)
            if rank.exitcode is None:
                rank.kill()
                said.append("a process was left")
    return last, victim, said


def main(count, kills, seed, markdown):
    lines, wrong, drawn = [], [], random.Random(seed)
    if count:
        found = groups(count)
        for rank, (early, late) in enumerate(found):
            text = "{} files, {:.0f} MB, {} names in /dev/shm"
            lines.append(
                f"rank {rank}: {text.format(*early)} after {count // 10 + 1} groups, "
                f"{text.format(*late)} after {count}"
            )
            if late[0] > early[0] or late[2] > early[2] or late[1] > early[1] + 20:
                wrong.append(lines[-1])
    times = []
    for number in range(kills):
        took, victim, said = kill_one(drawn)
        times.append(took)
        if any(f"rank {victim} has ended" not in text for text in said):
            wrong.append(f"kill {number} of rank {victim}: {said}")
        if number % 20 == 19:
            print(f"{number + 1} of {kills} killed, {len(wrong)} wrong", flush=True)
    if kills:
        times.sort()
        lines.append(
            f"{kills} kills of one of {RANKS} ranks, seed {seed}: the others had ended after "
            f"{times[kills // 2]:.2f} s (median), {times[-1]:.2f} s at most; {len(wrong)} wrong"
        )
    print("\n".join(lines + wrong))
    if markdown:
        markdown.write_text("\n".join(f"- {line}" for line in lines + wrong) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--markdown", type=Path, help="write what was found to this file, too")
    flags = parser.parse_args()
    sys.exit(main(flags.groups, flags.kills, flags.seed, flags.markdown))
