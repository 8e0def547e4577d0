"""Where the programs are, and how users call them: in a clone, or by `allcores` of a wheel."""

import contextlib
import os
import sys
from pathlib import Path

LIBRARY = Path(__file__).parent
# A clone has the library in scripts/; a wheel has it as a package, with the project beside it.
INSTALLED = LIBRARY.with_name("allcores_project")
PROJECT = INSTALLED if INSTALLED.is_dir() else LIBRARY.parents[1]
PROGRAMS = PROJECT / "scripts"
RUN = "ALLCORES_RUN"  # set by scripts/command.py


def snakemake():
    """How snakemake is called here: by the program `allcores`, by a path below this folder, or as
    it is."""
    if RUN in os.environ:
        return os.environ[RUN]
    path = Path(sys.executable).with_name("snakemake")
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else "snakemake"


def plan():
    """How a plan is made here."""
    return "allcores plan" if RUN in os.environ else "python scripts/plan.py"


@contextlib.contextmanager
def arguments_hidden():
    """Hide this program's arguments from the modules of users that are imported meanwhile: many a
    training script reads sys.argv when it is imported."""
    arguments = sys.argv[1:]
    del sys.argv[1:]
    try:
        yield
    finally:
        sys.argv[1:] = arguments
