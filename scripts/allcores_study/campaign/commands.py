"""Commands: invocations of snakemake, and the flags of programs that take a config as it does."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores_study import programs, yaml_files
from allcores_study.campaign import warm_start
from allcores_study.config import registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from allcores_study.config.run import Run

# Set by profiles/allocation.sh: how many CPUs (hardware threads) SLURM counts per core.
CORE_CPUS = "ALLCORES_CORE_CPUS"


def again(
    files: Iterable[str | Path],
    pairs: Iterable[str],
    snakefile: str,
    targets: Iterable[str] = (),
) -> str:
    """Return the command that rebuilds all of this, from this folder.

    Args:
        files: the files that --configfile gave.
        pairs: the KEY=VALUE texts that --config gave.
        snakefile: the one that this invocation uses.
        targets: files to make; none: all of this.
    """
    if programs.RUN in os.environ:
        words = programs.snakemake().split()
    else:
        words = [programs.snakemake()]
        if not _is_found(snakefile):
            words += ["-s", os.path.relpath(snakefile)]
    words += ["--cores", "all", *targets]
    # Of a flag that is repeated, Snakemake takes the last.
    for flag, values in (("--configfile", map(os.path.relpath, files)), ("--config", pairs)):
        if given := list(values):
            words += [flag, *given]
    return shlex.join(words)


def _is_found(snakefile: str) -> bool:
    """Return whether Snakemake would find a file, or this project's other one, without `-s`."""
    names = ("Snakefile", "workflow/Snakefile")
    found = next((Path(name).resolve() for name in names if Path(name).exists()), None)
    ours = {(programs.PROJECT / name).resolve() for name in names}
    asked = Path(snakefile).resolve()
    return found == asked or {found, asked} <= ours


def cores_flag(cores: int) -> str:
    """Return the flag of this invocation, or of its batch job, that requests so many cores."""
    if "SLURM_JOB_ID" in os.environ:
        return f"--cpus-per-task {cores * int(os.environ.get(CORE_CPUS, '1'))}"
    return f"--cores {cores}"


def quoted(*words: object) -> str:
    """Return the command of these words, for the shell."""
    return shlex.join(map(str, words))


def of_program(name: str, is_warm: bool, *arguments: object) -> str:
    """Return the command that runs scripts/NAME, for the shell; see warm_start.command()."""
    return quoted(*warm_start.command(programs.PROGRAMS / name, is_warm), *arguments)


def srun(run: Run, memory_mb: int) -> list[str]:
    """Return what starts a program once on each node of a SLURM job; the program follows."""
    limits = [f"--cpus-per-task={run.cores_on_node}", f"--mem={memory_mb}"]
    ends = ["--kill-on-bad-exit=1", "--wait=0", "--input=none", "--quiet"]
    nodes = [f"--nodes={run.nodes}", f"--ntasks={run.nodes}", "--ntasks-per-node=1"]
    return ["srun", *nodes, *limits, *ends]


def config_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the config flags of snakemake."""
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


def read_config(
    files: Sequence[str | Path], cores: int | None = None, pairs: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the config in YAML files, merged as Snakemake does, its sweeps expanded.

    Args:
        files: later ones override earlier ones.
        cores: number of cores that the runs will share; None if unknown.
        pairs: the KEY=VALUE texts that --config gave.

    Raises:
        ValueError: it cannot be run; a line per finding.
        OSError: a file cannot be read.
    """
    from snakemake.utils import update_config  # here, as --help does not need it

    from allcores_study.campaign import snakemake_internals

    config: dict[str, Any] = {}
    for file in files:
        update_config(config, yaml_files.read(file))
    if pairs:
        update_config(config, yaml_files.typed(snakemake_internals.parsed_pairs(pairs)))
    return checked(config, files, cores)


def checked(
    config: dict[str, Any], files: Sequence[str | Path], cores: int | None = None
) -> dict[str, Any]:
    """Return a config with its sweeps expanded; raises ValueError as read_config() does."""
    from allcores_study.config import checks, settings, sweeps  # nor this

    if problems := checks.findings(config, files, cores):
        raise ValueError("\n".join(["The config cannot be run:", *problems]))
    return sweeps.expanded(settings.with_defaults(config))
