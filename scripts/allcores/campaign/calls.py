"""Calls of snakemake, as commands."""

import os
import shlex
import sys


def again(files, given):
    """The command that makes all of this again, from this folder.

    Args:
        files: what --configfile gave.
        given: what --config gave.
    """
    words = [".venv/bin/snakemake", "--cores", "all"]
    for file in files:
        words += ["--configfile", os.path.relpath(file)]
    for pair in given:
        words += ["--config", pair]
    return shlex.join(words)


def within(snakefile, cores, rules, files, given):
    """The command of a call within another one, which holds the lock, of some rules only."""
    command = [sys.executable, "-m", "snakemake", "-s", snakefile, "--nolock", "--quiet"]
    command += ["--cores", str(cores), "--allowed-rules", *rules]
    command += ["--configfile", *map(str, files)] if files else []
    return command + (["--config", *given] if given else [])
