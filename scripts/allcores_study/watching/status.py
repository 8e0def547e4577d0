"""The progress of a config's runs, from what its invocations have recorded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores_study.watching import closing, journal, progress_line, state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allcores_study.config.grid import Table
    from allcores_study.records.results_folder import ResultsFolder
    from allcores_study.watching.ledger import Ledger

PATIENCE = 10.0  # seconds that an invocation may take to lock the results folder


class Status:
    """The state of a config's runs in its results folder."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.folder, self.table = ledger, ledger.folder, ledger.table

    def look(self) -> state.CallSnapshot:
        """Return a snapshot of the latest invocation."""
        call, jobs = journal.read_call(self.folder), journal.read_jobs(self.folder)
        is_over = not journal.is_held(self.folder)
        # Another invocation may be about to begin, and not have recorded anything yet.
        is_earlier = is_over or (call is not None and not journal.is_held_by(self.folder, call))
        runs = state.states(self.table.runs, jobs, self.ledger.check, is_earlier)
        return state.CallSnapshot(self.table, call, jobs, runs, is_over)

    def lines(self, look: state.CallSnapshot, rerun: Callable[[str], str]) -> Iterator[str]:
        """Yield lines on all runs, on each running job, and on why jobs failed.

        On one machine, each failed run comes with the command that reruns just this one.

        Args:
            look: the snapshot to describe.
            rerun: returns the command that makes a mark.
        """
        yield look.line()
        yield from look.lines_of_jobs()
        if look.call and look.is_over:
            yield "snakemake is not running"
        # On a cluster, the same command as before retries what failed.
        is_here = look.call is None or not look.call.is_spread
        failed = {path for path, one in look.runs.items() if one.state == state.FAILED}
        for job in look.jobs:
            of_job = [path for path in job.runs if path in failed]
            if of_job or (job.state == journal.FAILED and not job.runs):
                yield from ("", *closing.failure(job))
            for path in of_job if is_here else []:
                yield f"    rerun: {rerun(self.ledger.run_to_train(path))}"

    def watch(self) -> None:
        """Show the line every second, until no invocation is running and none begins soon."""
        started = time.monotonic()

        def look() -> state.CallSnapshot:
            seen = self.look()
            are_done = all(one.state == state.DONE for one in seen.runs.values())
            if seen.is_over and (are_done or time.monotonic() - started > PATIENCE):
                screen.over.set()
            return seen

        screen = progress_line.ProgressLine(look, interval=progress_line.EVERY)
        try:
            screen.run()
        finally:
            screen.close()


def unused(
    folder: ResultsFolder, table: Table, config: dict[str, Any], remove: bool = False
) -> Iterator[str]:
    """Yield lines on the parts of the results that the config no longer asks for, with their sizes.

    Args:
        folder: where the results are.
        table: the runs of the config.
        config: its content, as an invocation writes it.
        remove: whether to delete them.
    """
    total = 0
    for part, wanted in _wanted(folder, table, config).items():
        place = Path(folder.path, part)
        files = [file for file in place.rglob("*") if file.is_file()]
        gone = [file for file in files if wanted.isdisjoint(_names(file.relative_to(place)))]
        size = sum(file.stat().st_size for file in gone)
        total += size
        if gone:
            yield f"{place}: {len(gone)} of {len(files)} files, {size / 1e6:,.1f} MB"
        for file in gone if remove else []:
            file.unlink()
        for inner in sorted(place.rglob("*"), reverse=True) if remove else []:
            if inner.is_dir() and not any(inner.iterdir()):
                inner.rmdir()
    what = "removed" if remove else "not asked for by the config; --remove-unused deletes them"
    yield f"{total / 1e6:,.1f} MB {what}" if total else "nothing is unused"


def _names(path: Path) -> Iterator[str]:
    """Yield the names by which a file may be wanted: with and without suffixes, and its folders."""
    stem = path.with_suffix("")  # for a log, this still has the digest of a mark
    return map(str, (path, stem, stem.with_suffix(""), *path.parents))


def _wanted(folder: ResultsFolder, table: Table, config: dict[str, Any]) -> dict[str, set[str]]:
    """Return part of the results -> names in it that the config asks for, see _names()."""
    runs = table.runs
    checkpoints = Path(folder.path, "checkpoints")
    return {
        "runs": set(runs),
        "checkpoints": {
            str(Path(folder.checkpoints(run)).relative_to(checkpoints)) for run in runs.values()
        },
        "data": {run.dataset.label for run in runs.values()},
        "selections": set(table.selections),
        "studies": set(table.studies),
        "configs": {Path(folder.config(config)).stem},
        "logs/train": set(runs),
    }
