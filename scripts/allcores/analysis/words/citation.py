"""Which version of allcores this is, and how to cite it."""

import shutil
import subprocess

import allcores
from allcores import programs

# As CITATION.cff has it.
BIBTEX = f"""@misc{{allcores,
  author = {{{{The allcores authors}}}},
  title  = {{allcores: train neural networks on every CPU core,
            and see which way of using them is fastest}},
  year   = {{2026}},
  note   = {{Version {allcores.__version__}}}
}}"""


def version():
    """The version, and the commit where this is a clone: "0.1.0 (commit 1a2b3c4)"."""
    commit = _commit()
    return f"{allcores.__version__} (commit {commit})" if commit else allcores.__version__


def _commit():
    """With -dirty if files have changed since; "": this is no clone, or there is no git."""
    if not (programs.PROJECT / ".git").exists() or shutil.which("git") is None:
        return ""
    command = ["git", "-C", programs.PROJECT, "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()
