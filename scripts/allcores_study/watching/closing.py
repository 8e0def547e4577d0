"""The last lines of a call: obstacles that end it before its first job; or what there is now, what
failed, what diverged, and what to do."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores_study.records import run_files
from allcores_study.training.progress import FAILED, STOPPED, TRAINED
from allcores_study.watching import journal
from allcores_study.watching.ledger import UpToDateCheck

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from allcores_study.config.grid import Table
    from allcores_study.records.results_folder import ResultsFolder
    from allcores_study.watching.journal import JobRecord, Journal

MOST = 5  # lines of a kind
# Lines that do not say why: empty ones, and those in which Python marks a part of the line before.
EMPTY = re.compile(r"[ ^~]*$")
# SLURM's on the end of a step, which say why where nothing else does.
OF_SLURM = ("srun: ", "slurmstepd: ")
LEAST_ROOM = 2**20  # bytes that must be free where results go
LEAST_UNUSED = 10**7  # bytes of stored runs that are worth a line
LAST_LINES, LONGEST = 3, 300  # lines of a failed job's log, and characters of a line


def lines(folder: ResultsFolder, table: Table, call_journal: Journal | None) -> Iterator[str]:
    """The last lines of a call.

    Args:
        folder: the ResultsFolder.
        table: the grid.Table of its config.
        call_journal: journal.Journal of the call; None: it ended before its first job.
    """
    if call_journal is None:
        return
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
    missing = [path for path in folder.wanted_paths(table) if not is_up_to_date(path)]
    diverged = [path for path in trained if _has_diverged(folder, path)]
    yield f"\n{len(trained)} runs trained, {len(diverged)} of them diverged; {len(missing)} missing"
    yield from _listed([f"  diverged: {path}" for path in diverged])
    yield from _listed(["\n".join(failure(job)) for job in failed])
    yield from _listed([f"  stopped: {path}" for path in stopped])
    yield from _of_stores(folder, table)
    pages = {name: Path(folder.study(name), "report.html") for name in table.studies}
    if missing or not (failed or all(page.exists() for page in pages.values())):
        yield f"The same call goes on with the missing {'runs' if missing else 'reports'}."
    for name, page in pages.items():
        if page.exists():
            is_new = page.stat().st_mtime >= call_journal.call.started or not missing
            yield f"Report of {name}{'' if is_new else ', of an earlier call'}: {page}"


def _of_stores(folder: ResultsFolder, table: Table) -> Iterator[str]:
    """[a line] if most of what short runs have left is not asked for any more, else []."""
    used = {run.file.stem for path, run in folder.store.runs.items() if path in table.runs}
    sizes = {file: file.stat().st_size for file in folder.store.folder.glob("*.bin")}
    unused = sum(size for file, size in sizes.items() if file.stem not in used)
    if unused > LEAST_UNUSED and unused > sum(sizes.values()) / 2:
        place = (
            f"{unused / 1e6:,.0f} of {sum(sizes.values()) / 1e6:,.0f} MB in {folder.store.folder}"
        )
        yield f"{place} are of runs that were trained again since; status.py --remove-unused"


def _runs(job: JobRecord, of_state: str) -> dict[str, Any]:
    """Path -> progress.RunProgress of the runs of a job that have ended in a state; of one that has
    finished, all are TRAINED."""
    if job.state == journal.FINISHED:
        return dict.fromkeys(job.runs if of_state == TRAINED else [])
    known = job.progress_of_runs() if len(job.runs) > 1 else {}
    return {path: one for path, one in known.items() if path and one.state == of_state}


def _has_diverged(folder: ResultsFolder, path: str) -> bool:
    try:
        return bool(run_files.metrics(folder.run_files(path))["diverged"])
    except (OSError, ValueError):  # reported by whatever reads it next
        return False


def _listed(parts: Sequence[str]) -> Iterator[str]:
    yield from parts[:MOST]
    if len(parts) > MOST:
        yield f"  and {len(parts) - MOST} more"


def failure(job: JobRecord) -> Iterator[str]:
    """Lines on a failed journal.JobRecord: which, why, the end of its log, and where that is."""
    yield f"  failed: {job.rule} {job.title}"
    of_runs = [(path, one.error.splitlines()) for path, one in _runs(job, FAILED).items()]
    yield from _listed([f"    its run {': '.join([path, *why[-1:]])}" for path, why in of_runs])
    yield from (f"    {line[:LONGEST]}" for line in job.message.splitlines()[:1])
    lines = last_lines(job.log)
    yield from (f"    {line}" for line in lines)
    yield f"    its log: {job.log}" if lines else "    it left no log"


def last_lines(log: str | Path) -> list[str]:
    """The lines of a log that say why a job failed: its last ones; []: there is no log."""
    try:
        text = Path(log).read_text(errors="replace")
    except OSError:
        return []
    lines = [line for line in text.splitlines() if not EMPTY.match(line)]
    of_program = [line for line in lines if not line.startswith(OF_SLURM)]
    return [line[:LONGEST] for line in (of_program or lines)[-LAST_LINES:]]


def unusable(folder: Path) -> list[str]:
    """[a finding] if nothing can be written in a folder, which may not exist yet, else [].

    Snakemake would end in a traceback.
    """
    place = next(place for place in (folder, *folder.parents) if place.exists())
    if not place.is_dir():
        return [f"{place}: expected a folder; move that file away"]
    if not os.access(place, os.W_OK | os.X_OK):
        return [f"{place}: nothing may be written there; call from another folder"]
    free = shutil.disk_usage(place).free
    return [f"{place}: {free:,} bytes are free; make room"] if free < LEAST_ROOM else []


def stop_at(findings: Sequence[str], heading: str = "The configuration cannot be run") -> None:
    """End this process with a heading and a line for each finding, if there are any."""
    if findings:
        # Not a WorkflowError: Snakemake would print lines of the Snakefile below the findings.
        sys.exit("\n".join([f"{heading}:", *findings]))
