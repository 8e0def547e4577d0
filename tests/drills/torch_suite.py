"""torch's own tests of torch.distributed, by gloo and by shm: what gloo passes, shm has to pass.

    pip install expecttest
    python tests/drills/torch_suite.py --markdown results/torch_suite.md

The tests are in torch's wheel (torch/testing/_internal/distributed/distributed_test.py). They ask
for a backend by name, so shm takes gloo's name for them. Those that need a GPU are skipped by both.
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import unittest
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

BACKENDS = ("gloo", "shm")
LIMIT = 120  # seconds for one test
RANKS = 3


def take_name():
    """Have shm made where gloo is asked for."""
    import torch.distributed as dist

    import allcores.backend  # noqa: F401

    def renamed(make):
        def made(*arguments, backend=None, **options):
            return make(*arguments, backend="shm" if backend == "gloo" else backend, **options)

        return made

    dist.init_process_group = renamed(dist.init_process_group)
    dist.new_group = renamed(dist.new_group)
    backend_of = dist.get_backend
    dist.get_backend = lambda group=None: (
        "gloo" if backend_of(group) == "shm" else backend_of(group)
    )


def cases():
    """The class with the tests, each in processes forked from this one."""
    from torch.testing._internal.distributed import distributed_test

    # How an event of the profiler is called is left aside: of shm there is torch's own only.
    distributed_test.PROFILING_SUPPORTED_BACKENDS = []

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(get_context("fork").Process)

    return Suite


def run_one(name, backend, folder, answer):
    """In a process of its own: run a test, and answer (passed, failed or skipped; why)."""
    os.setsid()
    os.environ["TEMP_DIR"] = folder
    with (Path(folder) / "said").open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    if backend == "shm":
        take_name()
    result = unittest.TestResult()
    cases()(name).run(result)
    wrong = [text for _, text in result.errors + result.failures]
    errors = [line for text in wrong for line in text.splitlines() if "Error" in line]
    how = "skipped" if result.skipped else "failed" if wrong else "passed"
    answer.send((how, errors[-1] if errors else ""))
    os._exit(0)


def run(name, backend):
    """(passed, failed, skipped or hung; why) of a test by a backend."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("barrier", "test_dir"):
            (Path(folder) / part).mkdir()
        fork = get_context("fork")
        answer, end = fork.Pipe(duplex=False)
        process = fork.Process(target=run_one, args=(name, backend, folder, end))
        process.start()
        end.close()
        try:
            return answer.recv() if answer.poll(LIMIT) else ("hung", "")
        except EOFError:
            return "failed", "it ended its process"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.join()


def main(match, markdown):
    names = [name for name in unittest.TestLoader().getTestCaseNames(cases()) if match in name]
    counts, rows = {backend: Counter() for backend in BACKENDS}, []
    for number, name in enumerate(names, start=1):
        found = {}
        for backend in BACKENDS:
            if found.get("gloo", ("",))[0] == "skipped":
                found[backend] = ("skipped", "")  # for want of a GPU, or of what gloo has
            else:
                found[backend] = run(name, backend)
            counts[backend][found[backend][0]] += 1
        print(
            f"{number:4} of {len(names)}  {name}", *(how for how, _ in found.values()), flush=True
        )
        if found["gloo"][0] == "passed" != found["shm"][0]:
            rows.append(f"| {name} | {found['shm'][0]} | {found['shm'][1][:120]} |")
    kinds = ("passed", "failed", "hung", "skipped")
    lines = [f"| backend | {' | '.join(kinds)} |", "|---|" + "---:|" * len(kinds)]
    lines += [f"| {b} | {' | '.join(str(counts[b][kind]) for kind in kinds)} |" for b in BACKENDS]
    lines += ["", "| what gloo passes and shm does not | | why |", "|---|---|---|", *rows]
    print("\n".join(lines))
    if markdown:
        markdown.write_text("\n".join(lines) + "\n")
    return 1 if rows else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--match", default="", help="tests whose names contain this")
    parser.add_argument("--markdown", type=Path, help="write the table to this file, too")
    flags = parser.parse_args()
    # What the tests ask for as they are imported.
    os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": str(RANKS), "INIT_METHOD": "env://"}
    os.environ |= {"TEMP_DIR": tempfile.gettempdir(), "MASTER_ADDR": "127.0.0.1"}
    sys.exit(main(flags.match, flags.markdown))
