"""Run the workflow on a config from Python: write it, start Snakemake, show a bar, raise errors."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from numbers import Integral
from pathlib import Path
from typing import Any

import yaml

from allcores.files import write_text
from allcores.machine import cores, lifetime
from allcores_study import programs, yaml_files
from allcores_study.campaign import warm_start
from allcores_study.config import settings
from allcores_study.records import results_folder
from allcores_study.records.results_folder import FINAL_MODELS, ResultsFolder
from allcores_study.watching import journal
from allcores_study.watching.progress_line import LINES_EVERY
from allcores_study.watching.state import DONE, FAILED, RUNNING, WAITING

SNAKEMAKE = [sys.executable, "-m", "snakemake"]
HEADER = "# Written by allcores_study; another call from Python with this name overwrites it.\n"
BAR = "{desc}: {n_fmt} of {total_fmt} runs |{bar}| {elapsed}{postfix}"
# A line of Snakemake's process on the progress of its runs, see CallSnapshot.line().
PROGRESS = re.compile(
    f"([0-9]+) {DONE}, ([0-9]+) {RUNNING}, ([0-9]+) {FAILED}, ([0-9]+) {WAITING}(.*)"
)
# Why jobs wait in SLURM, and what is damaged.
NOTICE = re.compile("SLURM |Jobs pending in SLURM|.*; rebuilding it$")
LOG_EVERY = 60.0  # seconds between lines of the bar in a file
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


@contextlib.contextmanager
def alone(file: Path) -> Iterator[None]:
    """Keep other calls from Python of the same name out.

    Raises:
        ValueError: one is running.
    """
    try:
        held = journal.hold(results_of(file).call_file("python"))
    except BlockingIOError as error:
        raise ValueError(
            f"name: another call of {file.stem} is running ({error}); wait until it has ended, or "
            "choose another name"
        ) from None
    with held:
        yield


def has_final(file: Path, study: str) -> bool:
    """Return whether an earlier call made, or was to make, final models of a study of a file."""
    # There is none yet, or it is damaged.
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        if yaml_files.read(file)["studies"][study].get("final"):
            return True
    return Path(results_of(file).path, "studies", study, FINAL_MODELS).exists()


def write(file: Path, config: dict[str, Any]) -> None:
    """Write a config as a person would."""
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, default_flow_style=None)
    write_text(file, HEADER + text)


def run(file: Path, wanted_cores: int | str, data: str, profile: str | None = None) -> None:
    """Train what is missing of a config in the working directory, and make its tables.

    Ctrl-C stops the runs as it does in a terminal: they save and can be resumed.

    Args:
        wanted_cores: number of cores, or "all".
        data: label of the dataset, for messages.
        profile: name or folder of a profile of Snakemake, which decides how runs are started.

    Raises:
        ValueError: the config cannot be run; a line per argument that is wrong.
        StudyError: some runs failed.
    """
    is_count = isinstance(wanted_cores, Integral) and not isinstance(wanted_cores, bool)
    if wanted_cores != "all" and not (is_count and int(wanted_cores) > 0):
        raise ValueError(f"cores: found {wanted_cores!r}; expected a number from 1, or 'all'")
    count = cores.allowed() if wanted_cores == "all" else wanted_cores
    flags = ["-s", str(programs.PROJECT / "workflow" / "Snakefile"), "--configfile", str(file)]
    flags += ["--profile", _profile(profile)] if profile else ["--cores", str(count)]
    # A class beside a script is importable for it, wherever it is started.
    paths = [sys.path[0], *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), LINES_EVERY: "1"}
    with contextlib.ExitStack() as ends:
        if not profile and warm_start.THERE not in os.environ:
            # It imports while snakemake starts, whose jobs it runs.
            place = Path(f"{warm_start.folder()}_{file.stem}")
            log = f"{results_of(file).path}/logs/warm_process.log"
            ends.callback(warm_start.start(log, place=place, environment=environment))
            environment |= {warm_start.THERE: str(place)}
        process = subprocess.Popen(
            [*SNAKEMAKE, *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,  # a signal to this process reaches the runs only from _stop()
            preexec_fn=functools.partial(lifetime.die_with_parent, os.getpid()),
        )
        try:
            printed = _show_progress(process, file.stem)
            failed = process.wait()
        except BaseException as error:
            _stop(process)
            if isinstance(error, KeyboardInterrupt):
                print("stopped; the same call continues", file=sys.stderr)
            raise
    if failed:
        raise _error(file.stem, data, printed)


def _profile(name: str) -> str:
    """Return the folder of a profile.

    Raises:
        ValueError: there is none of this name.
    """
    if not isinstance(name, str | Path):
        raise ValueError(f"profile: found {name!r}; expected a name or a folder")
    places = [Path(name), programs.PROJECT / "profiles" / name]
    for place in places:
        if (place / "config.yaml").is_file():
            return str(place)
    raise ValueError(f"profile: found no {name} with a config.yaml; tried {places[0]}, {places[1]}")


def _show_progress(process: subprocess.Popen[str], name: str) -> list[str]:
    """Show a bar of the runs until the process ends, and return the other lines that it printed."""
    with warnings.catch_warnings():  # in a notebook without ipywidgets, tqdm asks for them
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm
    bar, printed, shown = None, [], 0.0
    # In a file, such as the log of a job, each look at the bar is a line.
    pause = 0.0 if sys.stderr.isatty() or "ipykernel" in sys.modules else LOG_EVERY
    assert process.stdout is not None
    for line in process.stdout:
        found = PROGRESS.match(line)
        if found is None:
            printed.append(line.rstrip("\n"))
            if NOTICE.match(line):
                tqdm.write(printed[-1], file=sys.stderr)
            continue
        done, *others = map(int, found.groups()[:4])
        bar = bar or tqdm(total=0, desc=name, bar_format=BAR)
        bar.total, bar.n = done + sum(others), done
        if time.monotonic() - shown >= pause:
            shown = time.monotonic()
            bar.set_postfix_str(found[5].strip("; \n"))
    if bar is not None:
        bar.close()
    return printed


def command() -> str:
    """Return what runs the workflow from a terminal; a config follows."""
    if programs.INSTALLED.is_dir():
        return "allcores run"
    program = Path(sys.executable).with_name("snakemake")
    snakefile = programs.PROJECT / "workflow" / "Snakefile"
    return shlex.join([str(program), "-s", str(snakefile), "--cores", "all"])


def results_of(file: Path) -> ResultsFolder:
    """Return the results of a config, in the working directory."""
    return ResultsFolder(f"results/{results_folder.name_of([file])}")


def _stop(process: subprocess.Popen[str]) -> None:
    """Interrupt Snakemake and its runs, as Ctrl-C in a terminal does, and wait; again if again."""
    while process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(KeyboardInterrupt):
            process.communicate()  # what it still prints has to be read, or it would wait


def _error(name: str, data: str, lines: list[str]) -> Exception:
    """Return a ValueError of the findings on a config, in terms of arguments, or a StudyError."""
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
