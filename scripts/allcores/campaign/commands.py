"""Calls of snakemake, as commands."""

import os
import shlex
import sys
from pathlib import Path


def program():
    """How snakemake is called from here, as this process was."""
    path = Path(sys.executable).with_name("snakemake")
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else "snakemake"


def again(files, given):
    """The command that makes all of this again, from this folder.

    Args:
        files: what --configfile gave.
        given: what --config gave.
    """
    words = [program(), "--cores", "all"]
    for file in files:
        words += ["--configfile", os.path.relpath(file)]
    for pair in given:
        words += ["--config", pair]
    return shlex.join(words)


def within(snakefile, cores, rules, files, given):
    """The command of a call within another one, which holds the lock, of some rules only."""
    command = [sys.executable, "-m", "snakemake", "-s", snakefile, "--nolock"]
    command += ["--quiet", "host", "progress", "reason", "rules"]
    command += ["--cores", str(cores), "--allowed-rules", *rules]
    command += ["--configfile", *map(str, files)] if files else []
    return command + (["--config", *given] if given else [])
