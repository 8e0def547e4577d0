"""Where the programs are, and how users start them: from a clone, or as `allcores` from a wheel."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from allcores.machine import any_torchvision

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LIBRARY = Path(__file__).parent
ENGINE = LIBRARY.with_name("allcores")
# A clone has both packages in scripts/; a wheel installs them, with the project beside them.
INSTALLED = LIBRARY.with_name("allcores_project")
PROJECT = INSTALLED if INSTALLED.is_dir() else LIBRARY.parents[1]
PROGRAMS = PROJECT / "scripts"
RUN = "ALLCORES_RUN"  # set by scripts/command.py

# Names of the packages of users' modules in this process, and of those that they import.
brought: set[str] = set()


def snakemake() -> str:
    """Return the command that starts snakemake here.

    It is the program `allcores`, or plain `snakemake` where a shell finds it, else its path.
    """
    if RUN in os.environ:
        return os.environ[RUN]
    path = Path(sys.executable).with_name("snakemake")
    if path.is_relative_to(Path.cwd()):
        return os.path.relpath(path)
    is_found = not path.exists() or shutil.which("snakemake") == str(path)
    return "snakemake" if is_found else str(path)


def plan() -> str:
    """Return the command that makes a plan here."""
    return "allcores plan" if RUN in os.environ else "python scripts/plan.py"


def is_ours(module: str) -> bool:
    """Return whether a module name belongs to one of the project's two packages."""
    return module.partition(".")[0] in (ENGINE.name, LIBRARY.name)


@contextlib.contextmanager
def users_module(module: str) -> Iterator[None]:
    """Import a module, perhaps a user's, inside this context.

    A user's module does not see this program's arguments, because many training scripts read them
    on import. It and the packages that it imports count as `brought`.
    """
    if is_ours(module):
        yield
        return
    any_torchvision.let_it_be_imported()
    arguments, before = sys.argv[1:], set(sys.modules)
    del sys.argv[1:]
    try:
        yield
    finally:
        sys.argv[1:] = arguments
        brought.add(module.partition(".")[0])
        if new := sys.modules.keys() - before:
            brought.update(_packages(new) - _packages(before))


def _packages(modules: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}
