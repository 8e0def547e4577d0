"""Run the workflow on a config from Python: write it, start Snakemake, show a bar, raise errors."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import IO, Any

import yaml

from allcores.files import write_text
from allcores.machine import cores, lifetime
from allcores_study import programs, yaml_files
from allcores_study.config import grid, settings, sweeps
from allcores_study.records import results_folder
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.watching import journal
from allcores_study.watching.ledger import Ledger
from allcores_study.watching.progress_line import SHARE_OF_TIME
from allcores_study.watching.status import Status

HEADER = "# Written by allcores_study; another call from Python with this name overwrites it.\n"
BAR = "{desc}: {n_fmt} of {total_fmt} runs |{bar}| {elapsed}{postfix}"
EVERY = 0.5  # seconds between two updates of the bar
LAST_LINES = 25  # of what Snakemake printed, in the error of a study that failed


class StudyError(RuntimeError):
    """A study was stopped, or some of its runs failed; the message ends with what was printed."""


def file_of(name: str) -> Path:
    """Return the config file of a study, in the working directory.

    Raises:
        ValueError: the name is no label, or a person wrote that file.
    """
    if not isinstance(name, str) or not settings.is_label(name):
        raise ValueError(f"name: found {name!r}; expected letters, digits, _, - and .")
    file = Path(f"{name}.yaml")
    results_folder.name_of([file])
    if file.is_dir():
        raise ValueError(f"name: {file} is a folder; choose another")
    if file.exists() and not file.read_text(errors="replace").startswith(HEADER):
        raise ValueError(f"name: {file} exists and was not written from Python; choose another")
    return file


def write(file: Path, config: dict[str, Any]) -> None:
    """Write a config as a person would."""
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, default_flow_style=None)
    write_text(file, HEADER + text)


def run(file: Path, wanted_cores: int | str, data: str) -> None:
    """Train what is missing of a config in the working directory, and make its tables.

    Ctrl-C stops the runs as it does in a terminal: they save and can be resumed.

    Args:
        wanted_cores: number of cores, or "all".
        data: label of the dataset, for messages.

    Raises:
        ValueError: the config cannot be run; a line per argument that is wrong.
        StudyError: some runs failed.
    """
    if wanted_cores != "all" and (type(wanted_cores) is not int or wanted_cores < 1):
        raise ValueError(f"cores: found {wanted_cores!r}; expected a number from 1, or 'all'")
    count = cores.allowed() if wanted_cores == "all" else wanted_cores
    snakefile = programs.PROJECT / "workflow" / "Snakefile"
    flags = ["-s", str(snakefile), "--cores", str(count), "--configfile", str(file)]
    # A class beside a script is importable for it, wherever it is started.
    paths = [sys.path[0], *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryFile("w+", errors="replace") as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", "snakemake", *flags],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # a signal to this process reaches the runs only from _stop()
            preexec_fn=functools.partial(lifetime.die_with_parent, os.getpid()),
        )
        try:
            _show_progress(process, file)
            failed = process.wait()
        except BaseException as error:
            _stop(process)
            if isinstance(error, KeyboardInterrupt):
                print("stopped; the same call continues", file=sys.stderr)
            raise
        if failed:
            raise _error(file.stem, data, printed)


def _show_progress(process: subprocess.Popen[bytes], file: Path) -> None:
    """Show a bar of the runs until the process ends."""
    bar, status, began, pause = None, None, time.time(), EVERY
    with warnings.catch_warnings():  # in a notebook without ipywidgets, tqdm asks for them
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm
    folder = results_of(file)
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(pause)
        with contextlib.suppress(OSError, ValueError):  # files come and go
            call = journal.read_call(folder)
            if call is None or call.started < began:
                continue  # the config has not been checked yet
            status = status or _status(file)
            looked = time.perf_counter()
            look = status.look()
            # A look at thousands of runs takes long, and the runs need the cores.
            pause = max(EVERY, (time.perf_counter() - looked) / SHARE_OF_TIME)
            if bar is None:
                bar = tqdm(total=len(look.runs), desc=file.stem, bar_format=BAR)
            bar.total, bar.n = len(look.runs), max(bar.n, look.done)
            bar.set_postfix_str(look.time_left)
    if bar is not None:
        bar.n = bar.total if process.returncode == 0 else bar.n
        bar.set_postfix_str("", refresh=False)
        bar.close()


def results_of(file: Path) -> ResultsFolder:
    """Return the results of a config, in the working directory."""
    return ResultsFolder(f"results/{results_folder.name_of([file])}")


def _status(file: Path) -> Status:
    config = config_of(file)
    return Status(Ledger(config, grid.expand(config), results_of(file)))


def config_of(file: Path) -> dict[str, Any]:
    """Return the config in a file, which was run, with its sweeps expanded."""
    return sweeps.expanded(settings.with_defaults(yaml_files.read(file)))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt Snakemake and its runs, as Ctrl-C in a terminal does, and wait; again if again."""
    while process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(KeyboardInterrupt):
            process.wait()


def _error(name: str, data: str, printed: IO[str]) -> Exception:
    """Return a ValueError of the findings on a config, in terms of arguments, or a StudyError."""
    printed.seek(0)
    lines = printed.read().splitlines()
    place = re.compile(rf"(?:.*/)?{re.escape(name)}\.yaml:\d+: (.*)")
    findings = [found[1] for line in lines if (found := place.match(line.strip()))]
    if findings:
        return ValueError("\n".join(_as_argument(name, data, finding) for finding in findings))
    return StudyError("\n".join([f"the study {name} failed:", *lines[-LAST_LINES:]]))


def _as_argument(name: str, data: str, finding: str) -> str:
    """Return a finding with the argument that it is about, in place of its key in the config."""
    for key, argument in ((f"studies.{name}", "the study"), (f"datasets.{data}", "data")):
        finding = re.sub(rf"^{re.escape(key)}\.", "", finding)
        finding = re.sub(rf"^{re.escape(key)}:", f"{argument}:", finding)
    return re.sub(r"^datasets\.0:", "data:", finding)
