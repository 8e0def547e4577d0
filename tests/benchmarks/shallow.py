"""A network of 38.6 million weights in a few layers, 8 images a step: one worker and two.

Little is computed and much is moved there, which is where data parallelism has a hard time.
"""

import sys
import tempfile

from measure import in_a_process, in_turn, ratios, report, sized

from allcores.machine import cores, lean_torch

cores.set_thread_variables(1)
lean_torch.import_torch()

from conduct import conduct, images, run_of, samples_per_second  # noqa: E402

REPEATS = 2
WAYS = [("serial", 1), ("shared_memory", 1), ("shared_memory", 2)]


def measure(strategy, workers):
    flags = [f"--strategy={strategy}", f"--workers={workers}", "--set=batch_size=8", "--epochs=2"]
    with tempfile.TemporaryDirectory() as folder:
        run = run_of("mlp", images(*sized((64, 224), (16, 16))), *flags, "--set=precision=fp32")
        return samples_per_second(conduct(run, folder))


if __name__ == "__main__":
    if sys.argv[1:]:
        print(measure(sys.argv[1], int(sys.argv[2])))
        sys.exit()
    throughputs = in_turn(
        {setup: lambda setup=setup: in_a_process(__file__, *setup) for setup in WAYS}, REPEATS
    )
    rows = [
        (f"{strategy}, {workers} worker(s)", "samples/s", throughputs[strategy, workers])
        for strategy, workers in WAYS
    ]
    one = throughputs["shared_memory", 1]
    rows += [
        ("shared_memory: one worker / serial", "x", ratios(one, throughputs["serial", 1])),
        ("shared_memory: two workers / one", "x", ratios(throughputs["shared_memory", 2], one)),
    ]
    report("shallow", rows)
