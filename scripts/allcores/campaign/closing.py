"""The last lines of a call: what there is now, what failed, what diverged, and what to do."""

import re
from pathlib import Path

from allcores.campaign import journal, state
from allcores.files import read_json

MOST = 5  # of a kind, each in a line of its own
# Lines that say nothing of the cause: empty ones, those with which Python points at a part of the
# one above, and what SLURM says of the end of a step.
EMPTY = re.compile(r"[ ^~]*$|srun: |slurmstepd: ")
LAST_LINES, LONGEST = 3, 300  # of the log of a job that failed, and characters of a line


def lines(folder, table, of_call, is_stopped):
    """The lines.

    Args:
        folder: the ResultsFolder.
        table: the grid.Table of its config.
        of_call: journal.Journal of the call; None: it ended before its first job.
        is_stopped: whether it was told to end, so that what else than a run has not come to its
            end has not failed either, nor has a run that had not said a word.
    """
    if of_call is None:
        return
    jobs = list(of_call.jobs.values())
    trained = [job for job in jobs if job.rule == "train" and job.state == journal.FINISHED]
    failed = [job for job in jobs if job.state == journal.FAILED and not state.was_stopped(job)]
    if is_stopped:
        failed = [job for job in failed if job.rule == "train" and state.text_of(job.log)]
    is_current = state.Current(folder, table)
    missing = [path for path in folder.wanted(table) if not is_current(path)]
    diverged = [job.title for job in trained if _has_diverged(folder, job.title)]
    yield f"\n{len(trained)} runs trained, {len(diverged)} of them diverged; {len(missing)} missing"
    yield from _listed([f"  diverged: {path}" for path in diverged])
    yield from _listed(["\n".join(failure(job)) for job in failed])
    if missing:
        yield "The same call goes on with what is missing."
    for name in table.studies:
        page = Path(folder.study(name), "report.html")
        if page.exists():
            is_new = page.stat().st_mtime >= of_call.call.started or not missing
            yield f"Report of {name}{'' if is_new else ', of an earlier call'}: {page}"


def _has_diverged(folder, path):
    try:
        return bool(read_json(f"{folder.run(path)}/metrics.json")["diverged"])
    except (OSError, ValueError):  # whoever reads it next says so
        return False


def _listed(parts):
    yield from parts[:MOST]
    if len(parts) > MOST:
        yield f"  and {len(parts) - MOST} more"


def failure(job):
    """Lines on a journal.Job that failed: which, why, the end of its log, and where that is."""
    yield f"  failed: {job.rule} {job.title}"
    yield from (f"    {line[:LONGEST]}" for line in job.message.splitlines()[:1])
    log = [line for line in state.text_of(job.log).splitlines() if not EMPTY.match(line)]
    yield from (f"    {line[:LONGEST]}" for line in log[-LAST_LINES:])
    yield f"    its log: {job.log}" if log else "    it left no log"
