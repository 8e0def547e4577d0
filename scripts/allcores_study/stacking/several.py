"""Jobs that several runs share.

Runs that can be stacked are trained together, in a process forked from this one. The others follow
one after the other, each in its own process. This process has imported what they need. A run that
fails does not affect the others, and the results do not depend on which runs share a job.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from allcores.files import read_json
from allcores.machine import lifetime
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.training import progress
from allcores_study.training.progress import BEGUN, FAILED, TRAINED


class SharedJob:
    """A job of several runs; those that it trained before it was stopped are not trained again.

    Args:
        file: JSON file of the job, CALL/NUMBER.json. It contains `results`, the folder that stores
            its runs, and `runs`, the path of each -> flags of scripts/train.py.

    Attributes:
        to_train: path -> flags of the runs that are not trained yet.
    """

    def __init__(self, file: Path) -> None:
        job = read_json(file)
        self.folder, self.name = ResultsFolder(job["results"]), f"{file.parent.name}_{file.stem}"
        done = self.trained()
        self.to_train = {path: flags for path, flags in job["runs"].items() if path not in done}
        progress.of_process.start_file(
            self.folder.shared_job(file.parent.name, file.stem, "jsonl"), trained=done
        )

    def trained(self) -> set[str]:
        """Return the paths of the runs of this job whose results are stored."""
        return self.folder.store.of_job(self.name)

    def begin(self, path: str) -> None:
        progress.of_process.begin(path)
        print(f"{BEGUN}: {path}", flush=True)

    def end(self, path: str, output: Path) -> None:
        """Store the results of a run, which it has written into a folder."""
        self.folder.keep(self.name, path, output)
        progress.of_process.end(TRAINED, path)
        print(f"{TRAINED}: {path}", flush=True)

    def train(
        self,
        stack: Callable[[SharedJob, Callable[[list[str]], None]], None],
        train_one: Callable[[list[str]], int],
        output_of: Callable[[list[str]], Path],
        program: Callable[..., int],
    ) -> list[str]:
        """Train the runs.

        Args:
            stack: function of self and of a function; trains those runs that can be stacked, after
                calling the latter with the paths of the others.
            train_one: function of the flags of a run; returns 0.
            output_of: function of the flags of a run; returns the folder of its results.
            program: calls a function in a process that ends with it; returns an exit status.

        Returns:
            Paths of the runs that failed.
        """
        from pyarrow import parquet  # noqa: F401 - before forking, or each run would import it

        alone, failed = self._stacked(stack, program), []
        stacked = self.trained()
        for path in self.to_train:
            if path in alone:
                self.begin(path)
                status, stop = _in_child(partial(program, train_one, self.to_train[path]))
                if status == 0:  # even if a request to stop came when it had just ended
                    self.end(path, output_of(self.to_train[path]))
                if stop:
                    raise stop
                if status == 0:
                    continue
            elif path in stacked:
                continue
            failed.append(path)
            progress.of_process.end(FAILED, path)
            print(f"{FAILED}: {path}", flush=True)
        return failed

    def _stacked(
        self,
        stack: Callable[[SharedJob, Callable[[list[str]], None]], None],
        program: Callable[..., int],
    ) -> set[str]:
        """Train what can be stacked; return the paths of the other runs.

        If the process that sorts them out ends before it has done so, these are all runs.
        """
        read, write = os.pipe()

        def train() -> int:
            os.close(read)
            stack(self, partial(_tell, write))
            return 0

        told = []

        def listen() -> None:
            os.close(write)
            with os.fdopen(read) as answer:
                told.append(answer.read())

        _, stop = _in_child(partial(program, train), before_waiting=listen)
        if stop:
            raise stop
        return set(json.loads(told[0]) if told[0] else self.to_train)


def _tell(pipe: int, paths: list[str]) -> None:
    """Write a list of paths into a pipe, and close it."""
    with os.fdopen(pipe, "w") as answer:
        json.dump(paths, answer)


def _in_child(
    target: Callable[[], int], before_waiting: Callable[[], None] = lambda: None
) -> tuple[int, KeyboardInterrupt | None]:
    """Call target() in a process forked from this one.

    Returns:
        (its exit status, the KeyboardInterrupt that stopped this process and, through it, the other
        one; None: nothing did)
    """
    parent, child = os.getpid(), os.fork()
    if not child:
        # A group of its own, so that a terminal's signal comes once, through this process.
        os.setpgid(0, 0)
        lifetime.die_with_parent(parent)
        # The costs of its runs count from here on, not from the start of the job's program.
        os.environ.pop(lifetime.CLIENT, None)
        os._exit(target())
    try:
        before_waiting()
        return _status(child), None
    except KeyboardInterrupt as stop:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.kill(child, signal.SIGTERM)
        return _status(child), stop


def _status(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
