"""The last lines of an invocation: what was trained, what failed or diverged, and what to do.

Findings that end it before its first job are printed from here as well.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores_study.analysis.study import CHECK, VERDICT
from allcores_study.config import grid
from allcores_study.records import run_files
from allcores_study.records.results_folder import FINAL_MODELS
from allcores_study.training.progress import FAILED, STOPPED, TRAINED
from allcores_study.watching import journal
from allcores_study.watching.ledger import UpToDateCheck

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from allcores_study.config.grid import Table
    from allcores_study.records.results_folder import ResultsFolder
    from allcores_study.watching.journal import JobRecord, Journal

MOST = 5  # lines of each kind
# Lines that give no reason: empty ones, and those in which Python marks a part of the line before.
EMPTY = re.compile(r"[ ^~]*$")
# SLURM's lines on the end of a step. They give the reason only if no other line does.
OF_SLURM = ("srun: ", "slurmstepd: ")
LEAST_ROOM = 2**20  # bytes that can be written where results go
LAST_LINES, LONGEST = 3, 300  # lines of a failed job's log, and characters of a line


def lines(
    folder: ResultsFolder, table: Table, call_journal: Journal, reported: Collection[str]
) -> Iterator[str]:
    """Yield the last lines of an invocation.

    Args:
        folder: where its results are.
        table: the runs of its config.
        call_journal: has the runs that it was to train.
        reported: names of the studies of which it was to make the report.
    """
    jobs = list(call_journal.jobs.values())
    trained = [path for job in jobs for path in _runs(job, TRAINED)]
    failed = [job for job in jobs if job.state == journal.FAILED or _runs(job, FAILED)]
    stopped = [
        path
        for job in jobs
        if job.state == journal.STOPPED
        for path in (job.runs if len(job.runs) == 1 else _runs(job, STOPPED))
    ]
    is_up_to_date = UpToDateCheck(folder, table)
    missing = [path for path in call_journal.call.expected if not is_up_to_date(path)]
    diverged = [path for path in trained if _has_diverged(folder, path)]
    yield f"\n{len(trained)} runs trained, {len(diverged)} of them diverged; {len(missing)} missing"
    yield from _listed([f"  diverged: {path}" for path in diverged])
    yield from _listed(["\n".join(failure(job)) for job in failed])
    yield from _listed([f"  stopped: {path}" for path in stopped])
    touched = set(call_journal.call.expected)
    pages = {name: Path(folder.study(name), "report.html") for name in table.reported}
    is_made = all(pages[name].exists() for name in reported)
    if missing or not (failed or is_made):
        yield (
            "Run the same command again to continue with the missing "
            f"{'runs' if missing else 'reports'}."
        )
    for name, page in pages.items():
        if page.exists():
            is_left = name not in reported and touched.isdisjoint(table.paths_of(name))
            is_new = page.stat().st_mtime >= call_journal.call.started or is_left
            yield from answer(page.parent) if is_new else ()
            yield f"Report of {name}{'' if is_new else ' (from an earlier invocation)'}: {page}"
        models = page.parent / FINAL_MODELS
        if f"{name}{grid.FINAL}" in table.studies and models.exists():
            yield f"Final models of {name}: {models}"


def answer(study: Path) -> list[str]:
    """Return the answer of a study, and what may be unintended in its data; []: none."""
    try:
        first, *others = (study / VERDICT).read_text().splitlines()
    except (OSError, ValueError):  # ValueError: no sentence
        return []
    return [first, *(sentence for sentence in others if sentence.startswith(CHECK))]


def _runs(job: JobRecord, of_state: str) -> dict[str, Any]:
    """Return path -> progress of the runs of a job that ended in a state.

    A finished job has trained all its runs; its values are None.
    """
    if job.state == journal.FINISHED:
        return dict.fromkeys(job.runs if of_state == TRAINED else [])
    known = job.progress_of_runs() if len(job.runs) > 1 else {}
    return {path: one for path, one in known.items() if path and one.state == of_state}


def _has_diverged(folder: ResultsFolder, path: str) -> bool:
    try:
        return bool(run_files.metrics(folder.run(path))["diverged"])
    except (OSError, ValueError):  # reported by whatever reads it next
        return False


def _listed(parts: Sequence[str]) -> Iterator[str]:
    yield from parts[:MOST]
    if len(parts) > MOST:
        yield f"  and {len(parts) - MOST} more"


def failure(job: JobRecord) -> Iterator[str]:
    """Yield lines on a failed job: which one, why, the end of its log, and the path of the log."""
    yield f"  failed: {job.rule} {job.title}"
    of_runs = [(path, one.error.splitlines()) for path, one in _runs(job, FAILED).items()]
    yield from _listed([f"    its run {': '.join([path, *why[-1:]])}" for path, why in of_runs])
    yield from (f"    {line[:LONGEST]}" for line in job.message.splitlines()[:1])
    lines = last_lines(job.log)
    yield from (f"    {line}" for line in lines)
    yield f"    its log: {job.log}" if lines else "    it left no log"


def last_lines(log: str | Path) -> list[str]:
    """Return the last lines of a log, which show why a job failed; [] if there is no log."""
    try:
        text = Path(log).read_text(errors="replace")
    except OSError:
        return []
    lines = [line for line in text.splitlines() if not EMPTY.match(line)]
    of_program = [line for line in lines if not line.startswith(OF_SLURM)]
    return [line[:LONGEST] for line in (of_program or lines)[-LAST_LINES:]]


def writable_problem(folder: Path) -> list[str]:
    """Return [a finding] if nothing can be written to a folder, which may not exist yet, else [].

    Without this check, Snakemake would end in a traceback.
    """
    place = next(place for place in (folder, *folder.parents) if place.exists())
    if not place.is_dir():
        return [f"{place}: found a file, expected a folder; move the file away"]
    try:  # a quota, or a lack of inodes, shows only when something is written
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(LEAST_ROOM))
    except PermissionError:
        return [f"{place}: no permission to write; run snakemake from another folder"]
    except OSError as error:
        return [f"{place}: {error.strerror}: {LEAST_ROOM:,} bytes cannot be written; make room"]
    return []


def stop_at(findings: Sequence[str], heading: str = "The config cannot be run") -> None:
    """Exit with a heading and a line for each finding, if there are any."""
    if findings:
        # Not a WorkflowError: Snakemake would print lines of the Snakefile below the findings.
        sys.exit("\n".join([f"{heading}:", *findings]))
