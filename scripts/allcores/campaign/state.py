"""What of a config is done, running, failed and to go, read from its results folder."""

import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from allcores.study.metrics_file import read_metrics
from allcores.study.results_folder import SUFFIX

DONE, RUNNING, FAILED, WAITING = "done", "running", "failed", "to go"
# A run that is going on has written within so many seconds; another node may be seen a minute late.
FRESH, FRESH_ON_CLUSTER = 5.0, 90.0
# What is expected counts as much as seeing this share of the work done.
TRUST = 0.05
# The last line of a run that was told to stop.
STOPPED = "stopped by"
EPOCH = re.compile(r"^epoch (\d+)/(\d+)  loss (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class RunState:
    """How far a run is.

    Attributes:
        path: by which the grid.Table knows it.
        state: DONE, RUNNING, FAILED or WAITING.
        epochs: whole epochs that it has trained.
        loss: of the last of them, a text; "": of none.
        elapsed: seconds that it has lasted.
    """

    path: str
    state: str
    epochs: int = 0
    loss: str = ""
    elapsed: float = 0.0


def states(folder, table, record):
    """The RunState of every run of a grid.Table.

    Args:
        folder: the ResultsFolder.
        record: the record.Record of the latest call; None: there was none.
    """
    return [_state(folder, table.runs[path], record) for path in folder.wanted(table)]


def _state(folder, run, record):
    begun = record.started if record and run.path in record.expected else 0.0
    results, log = Path(folder.run(run.path), "metrics.json"), Path(folder.log(run))
    if _written(results) > begun:
        return RunState(run.path, DONE, run.trained_epochs)
    checkpoints, logged = Path(folder.checkpoints(run)), _written(log)
    fresh = FRESH_ON_CLUSTER if record and record.spread else FRESH
    fresh = 0.0 if record and record.is_going_on is False else fresh
    # The rungs of a candidate share their checkpoints, but no log.
    if logged > begun and time.time() - _written(checkpoints / f"trace{SUFFIX}") < fresh:
        elapsed = time.time() - _written(checkpoints / f"lock{SUFFIX}")
        return RunState(run.path, RUNNING, *_epoch(log), elapsed)
    is_over = logged > begun and time.time() - logged > fresh
    if is_over and STOPPED not in text_of(log)[-200:]:
        return RunState(run.path, FAILED, *_epoch(log))
    return RunState(run.path, WAITING)


def _written(file):
    """When a file was written, in seconds since 1970; 0: there is none."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _epoch(log):
    """(whole epochs, loss of the last) that a log tells of."""
    found = EPOCH.findall(text_of(log))
    return (int(found[-1][0]), found[-1][2]) if found else (0, "")


def text_of(log):
    try:
        return Path(log).read_text(errors="replace")
    except OSError:
        return ""


def first_start(folder, found, record):
    """When the first run of a call began, in seconds since 1970; None: none has.

    Args:
        found: list of RunState.
    """
    starts = [time.time() - one.elapsed for one in found if one.state == RUNNING]
    for one in found:
        if one.state == DONE and one.path in record.expected:
            metrics = read_metrics(f"{folder.run(one.path)}/metrics.json")
            starts.append(metrics["sessions"][-1]["started"])
    return min(starts, default=None)


def seconds_left(found, table, record, available):
    """How long the runs of a call will last yet, by what they are expected to take and have taken.

    Args:
        found: list of RunState.
        record: record.Record of the call.
        available: number of cores.
    """
    done = left = longest = 0.0  # the first two in expected core-seconds
    for one in found:
        expected = record.expected.get(one.path, 0.0)
        claimed, rest = _cores(one, table, available), expected * (1 - _part(one, table))
        done += (expected - rest) * claimed
        if one.state in (RUNNING, WAITING):
            left += rest * claimed
            longest = max(longest, rest)
    # At the beginning the expectation counts for more than what has been seen.
    trusted = TRUST * (done + left)
    spent = (time.time() - (record.trained_since or record.started)) * available
    return (spent + trusted) / (done + trusted) * max(left / available, longest) if left else 0.0


def _part(one, table):
    """The share of a run that is done."""
    if one.state == DONE:
        return 1.0
    return one.epochs / table.runs[one.path].trained_epochs if one.state == RUNNING else 0.0


def _cores(one, table, available):
    """Those that a run keeps from others."""
    run = table.runs[one.path]
    return available if one.path in table.exclusive else min(available, run.cores)


def counts(found):
    """State -> how many runs are in it."""
    return Counter(one.state for one in found)
