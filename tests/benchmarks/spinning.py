"""Steps with as many threads as cores, by how long GNU OpenMP's threads spin at a barrier.

A waiting thread looks so many times whether the others have come before it sleeps. Where another
process has its core, the one that it waits for may be the one that cannot run.
"""

import os
import subprocess
import sys
import time
from functools import partial

from measure import IS_SMOKE, ROOT, in_turn, report, sized

from allcores.machine import cores

COUNTS = sized((None, 10_000, 4_000, 2_000, 1_000, 0), (None, 2_000))
# Model, images in a batch (3 x 32 x 32), steps.
CASES = [("lenet", 32, 150), ("mobilenet", 16, 15), ("vgg11", 16, 8)][: sized(None, 1)]
LONGEST = 30.0  # seconds after which the rest of the steps is not waited for
STEPS = f"""
import sys, time
sys.path.insert(0, {str(ROOT / "scripts")!r})
import torch
from allcores_study.config import registry

name, batch, steps, threads = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(threads)
model = registry.model(name).load()(channels=3, image_size=(32, 32), classes=10)
images, targets = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))


def step():
    torch.nn.functional.cross_entropy(model(images), targets).backward()


step()
began = time.perf_counter()
for count in range(1, steps + 1):
    step()
    if time.perf_counter() - began > {LONGEST}:
        break
print((time.perf_counter() - began) / count * steps)
"""


def seconds(count, case, busy):
    """Of the steps of a case beside a busy loop per core, or none."""
    environment = os.environ | ({} if count is None else {"GOMP_SPINCOUNT": str(count)})
    if count is None:
        environment.pop("GOMP_SPINCOUNT", None)
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(cores.allowed() if busy else 0)
    ]
    try:
        time.sleep(0.2 * busy)
        name, batch, steps = case
        arguments = name, batch, 1 if IS_SMOKE else steps, max(2, cores.allowed())
        command = [sys.executable, "-c", STEPS, *map(str, arguments)]
        return float(subprocess.check_output(command, env=environment, text=True))
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def rows():
    for busy in (False, True):
        for case in CASES:
            measured = in_turn({count: partial(seconds, count, case, busy) for count in COUNTS}, 2)
            for count, values in measured.items():
                spins = "as it is" if count is None else f"{count:,}"
                where = "beside a busy loop per core" if busy else "quiet"
                yield f"{case[2]} steps of {case[0]}, {where}: {spins}", "s", values


if __name__ == "__main__":
    report("spinning", list(rows()))
