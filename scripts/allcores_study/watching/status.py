"""The progress of a config's runs, from what its invocations have recorded."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores_study import programs
from allcores_study.config.run import digest
from allcores_study.records import marks
from allcores_study.watching import closing, journal, progress_line, state
from allcores_study.watching.ledger import UpToDateCheck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allcores_study.config.grid import Table
    from allcores_study.records.results_folder import ResultsFolder

DIGEST = "[0-9a-f]" * 8  # in the name of one processor's recipe
PATIENCE = 10.0  # seconds that an invocation may take to lock the results folder


class Status:
    """The state of a table's runs in a results folder."""

    def __init__(self, folder: ResultsFolder, table: Table) -> None:
        self.folder, self.table = folder, table
        self.is_up_to_date = UpToDateCheck(folder, table)

    def look(self) -> state.CallSnapshot:
        """Return a snapshot of the latest invocation."""
        call, jobs = journal.read_call(self.folder), journal.read_jobs(self.folder)
        is_over = call is None or call.is_going_on is False
        return state.CallSnapshot.at(
            self.folder, self.table, call, jobs, self.is_up_to_date, is_over
        )

    def lines(self, look: state.CallSnapshot, arguments: str) -> Iterator[str]:
        """Yield lines on all runs, on each running job, and on why jobs failed.

        On one machine, each failed run comes with the command that reruns just this one.

        Args:
            look: the snapshot to describe.
            arguments: what follows --configfile in the command.
        """
        yield look.line()
        yield from look.lines_of_jobs()
        if look.call and look.is_over and not journal.is_held(self.folder):
            yield "snakemake is not running here"
        # On a cluster, the same command as before retries what failed.
        is_here = look.call is None or not (look.call.is_spread or look.call.batch_job)
        failed = {path for path, one in look.runs.items() if one.state == state.FAILED}
        for job in look.jobs:
            of_job = [path for path in job.runs if path in failed]
            if of_job or (job.state == journal.FAILED and not job.runs):
                yield from ("", *closing.failure(job))
            for path in of_job if is_here else []:
                made_of = self.is_up_to_date.made_of(self.table.runs[path])
                mark = marks.wanted(f"{self.folder.run(path)}/made", digest(made_of), False)
                again = f"{programs.snakemake()} --cores all {mark} --configfile {arguments}"
                yield f"    rerun: {again}"

    def watch(self) -> None:
        """Show the line every second, until no invocation is running and none begins soon."""
        started = time.monotonic()

        def look() -> str:
            seen = self.look()
            # If the invocation is on another machine, only its runs are visible.
            known = {one.state for one in seen.runs.values()}
            is_seen = seen.call and (seen.call.is_going_on is not None or state.RUNNING in known)
            is_over, are_done = seen.is_over or not is_seen, known == {state.DONE}
            is_over &= not journal.is_held(self.folder)
            if is_over and (are_done or time.monotonic() - started > PATIENCE):
                screen.over.set()
            return seen.line()

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
            for empty in itertools.takewhile(lambda place: not any(place.iterdir()), file.parents):
                empty.rmdir()
    what = "removed" if remove else "not asked for by the config; --remove-unused deletes them"
    yield f"{total / 1e6:,.1f} MB {what}" if total else "nothing is unused"


def _names(path: Path) -> Iterator[str]:
    """Yield the names by which a file may be wanted: with and without suffixes, and its folders."""
    stem = path.with_suffix("")  # for a log, this still has the digest of a mark
    return map(str, (path, stem, stem.with_suffix(""), *path.parents))


def _wanted(folder: ResultsFolder, table: Table, config: dict[str, Any]) -> dict[str, set[str]]:
    """Return part of the results -> names in it that the config asks for, see _names()."""
    runs, recipes = table.runs, Path(folder.path, "recipes")
    of_runs = {Path(folder.recipe_of(run, table)) for run in runs.values()}
    copies = {file for one in of_runs for file in one.parent.glob(f"{one.stem}_{DIGEST}.json")}
    checkpoints = Path(folder.path, "checkpoints")
    return {
        "runs": set(runs),
        "short_runs": {run.file.stem for path, run in folder.store.runs.items() if path in runs},
        "checkpoints": {
            str(Path(folder.checkpoints(run)).relative_to(checkpoints)) for run in runs.values()
        },
        "data": {run.dataset.label for run in runs.values()},
        "recipes": {str(file.relative_to(recipes).with_suffix("")) for file in of_runs | copies},
        "selections": set(table.choices),
        "studies": set(table.studies),
        "configs": {Path(folder.config(config)).stem},
        "logs/train": set(runs),
    }
