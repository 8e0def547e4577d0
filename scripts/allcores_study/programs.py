"""Where the programs are, and how users call them: in a clone, or by `allcores` of a wheel."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY = Path(__file__).parent
ENGINE = LIBRARY.with_name("allcores")
# A clone has both packages in scripts/; a wheel installs them, with the project beside them.
INSTALLED = LIBRARY.with_name("allcores_project")
PROJECT = INSTALLED if INSTALLED.is_dir() else LIBRARY.parents[1]
PROGRAMS = PROJECT / "scripts"
RUN = "ALLCORES_RUN"  # set by scripts/command.py

# Names of packages: those of the modules of users in this process, and those they have imported.
brought: set[str] = set()


def snakemake() -> str:
    """How snakemake is called here: by the program `allcores`, by a path below this folder, or as
    it is."""
    if RUN in os.environ:
        return os.environ[RUN]
    path = Path(sys.executable).with_name("snakemake")
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else "snakemake"


def plan() -> str:
    """How a plan is made here."""
    return "allcores plan" if RUN in os.environ else "python scripts/plan.py"


def is_ours(module: str) -> bool:
    """Whether a module, by its name, is of one of the project's two packages."""
    return module.partition(".")[0] in (ENGINE.name, LIBRARY.name)


@contextlib.contextmanager
def users_module(module: str) -> Iterator[None]:
    """Context in which a module, perhaps of the user's, is imported by its name: it does not see
    this program's arguments, as many a training script reads them then, and counts as `brought`,
    with what it imports."""
    if is_ours(module):
        yield
        return
    arguments, before = sys.argv[1:], _packages()
    del sys.argv[1:]
    try:
        yield
    finally:
        sys.argv[1:] = arguments
        brought.update({module.partition(".")[0]} | _packages() - before)


def _packages() -> set[str]:
    return {name.partition(".")[0] for name in sys.modules}
