"""Train neural networks on every CPU core, from any folder.

    allcores run --configfile mine.yaml                  train a config on all cores; other
                                                         flags are snakemake's: -n, --cores 4,
                                                         --profile slurm
    allcores plan --configfile mine.yaml --cores 48      predict how long that takes
    allcores status --configfile mine.yaml --watch       show the progress
    allcores predict --help                              use a trained model
    allcores train --help                                train one network by hand
    allcores folder                                      print where allcores is installed
    allcores python                                      print the Python that it is installed for

Results go to results/ in the folder where you run the command.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

SCRIPTS = Path(__file__).resolve().parent
sys.path.append(str(SCRIPTS))

try:
    from snakemake import cli
    from snakemake.exceptions import CliException
except ImportError:
    sys.exit("allcores: packages are missing; install them: pip install 'allcores[workflow]'")

from allcores.machine import cores  # noqa: E402
from allcores.version import __version__  # noqa: E402
from allcores_study import yaml_files  # noqa: E402

if TYPE_CHECKING:
    from argparse import Namespace

PROFILES = SCRIPTS.parent / "profiles"
PROGRAMS = ("plan", "status", "predict", "train")
# The command that programs suggest instead of snakemake: see campaign/commands.py.
RUN = "allcores run"


def main() -> None:
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help") or (name == "run" and {"-h", "--help"} & set(arguments)):
        print(__doc__)
    elif name == "--version":
        print(__version__)
    elif name == "run":
        run(arguments)
    elif name == "folder":
        print(SCRIPTS.parent)
    elif name == "python":
        print(sys.executable)
    elif name in PROGRAMS:
        call(SCRIPTS / f"{name}.py", *arguments)
    else:
        sys.exit(
            f"allcores: found {name}; expected one of run, folder, python, {', '.join(PROGRAMS)}"
        )


def run(words: list[str]) -> NoReturn:
    """Replace this process with snakemake, with these arguments and those that are missing."""
    try:
        settings = settings_of(words)
    except CliException as error:  # such as `--cores two`
        sys.exit(f"allcores run: {error}")
    if not settings.configfile:
        sys.exit("allcores run: expected --configfile FILE; --help shows examples")
    try:
        for file in settings.configfile or []:
            yaml_files.read(file)
    except (ValueError, OSError) as error:
        sys.exit(f"allcores run: {error}")
    is_here = settings.executor in (None, "local")
    is_said = settings.cores is not None or settings.jobs is not None
    added = ["--cores", cores.allowed()] if is_here and not is_said else []
    snakefile = SCRIPTS.parent / "workflow" / "Snakefile"
    call("-m", "snakemake", "-s", snakefile, *added, *with_profiles(words))


def settings_of(words: list[str]) -> Namespace:
    """Return what Snakemake reads from arguments and from the profiles that they name."""
    words = with_profiles(words)
    given, _ = cli.get_argument_parser().parse_known_args(words)
    profiles = [profile for profile in given.profile or [] if profile != "none"]
    return cli.get_argument_parser(profiles).parse_known_args(words)[0] if profiles else given


def with_profiles(words: list[str]) -> list[str]:
    """Replace the names of our profiles with their paths where Snakemake does not find them."""

    def found(name: str) -> str:
        is_ours = name and (PROFILES / name).is_dir() and cli.get_profile_dir(name) is None
        return str(PROFILES / name) if is_ours else name

    replaced = []
    for before, word in zip([None, *words], words, strict=False):
        flag, separator, value = word.partition("=")
        if flag == "--profile" and separator:
            word = f"{flag}={found(value)}"
        replaced.append(found(word) if before == "--profile" else word)
    return replaced


def call(*words: object) -> NoReturn:
    """Replace this process with Python, with these arguments."""
    environment = os.environ | {"ALLCORES_RUN": RUN}
    os.execve(sys.executable, [sys.executable, *map(str, words)], environment)


if __name__ == "__main__":
    main()
