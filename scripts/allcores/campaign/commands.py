"""Commands: calls of snakemake, and the flags of programs that take a config as it does."""

import argparse
import os
import shlex
from pathlib import Path

from allcores import programs
from allcores.machine import warm_start
from allcores.study import registry


def again(files, pairs, snakefile):
    """The command that makes all of this again, from this folder.

    Args:
        files: the files that --configfile gave.
        pairs: the KEY=VALUE texts that --config gave.
        snakefile: that was called.
    """
    words = programs.snakemake().split()
    is_found = any(Path(place, "Snakefile").exists() for place in (".", "workflow"))
    if not is_found and programs.RUN not in os.environ:
        words += ["-s", os.path.relpath(snakefile)]
    words += ["--cores", "all"]
    for file in files:
        words += ["--configfile", os.path.relpath(file)]
    for pair in pairs:
        words += ["--config", pair]
    return shlex.join(words)


def quoted(*words):
    """The command of these words, for the shell."""
    return shlex.join(map(str, words))


def of_program(name, warm, *arguments):
    """The call of scripts/NAME, for the shell; see warm_start.command()."""
    return quoted(*warm_start.command(programs.PROGRAMS / name, warm), *arguments)


def config_parser(description):
    """An argparse.ArgumentParser with the config flags of snakemake."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--configfile",
        nargs="+",
        type=Path,
        default=[registry.CONFIG],
        metavar="FILE",
        help="as for snakemake (default: config/config.yaml)",
    )
    add("--config", nargs="+", default=[], metavar="KEY=VALUE", help="as for snakemake")
    return parser
