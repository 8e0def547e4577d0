"""Install the pinned packages of pyproject.toml into the environment of this Python.

    .venv/bin/python scripts/install.py run test      install only these groups

Then it compiles scripts/allcores/parallel/exchange.c, where there is no C compiler with that of the
package ziglang.

It uses uv, which takes a fraction of pip's time, with the versions and digests of
requirements.lock. If uv fails, it uses pip. uv does not read pip's settings, so they are passed to
it. On Linux, torch comes from PyTorch's index of CPU builds if that answers: the build on PyPI
brings several GB for GPUs.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tomllib
import urllib.request
from pathlib import Path

PROJECT = Path(__file__).parents[1]
UV, PIP = "uv==0.13.9", "pip==26.3"
# Versions and digests of all packages except torch. Only for uv: pip would also require digests of
# torch.
LOCK = PROJECT / "requirements.lock"
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
PATIENCE = 3  # seconds to wait for an answer of that index
# pip's settings -> uv's variables.
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}


def settings_of_pip(pip_config: str) -> dict[str, str]:
    """Return pip's settings as environment variables of uv; later places override earlier ones.

    Args:
        pip_config: output of `pip config list`, lines such as "global.index-url='https://...'".
    """
    variables = {}
    for place in ("global", "user", "site", "install", ":env:"):
        for key, value in re.findall(rf"^{place}\.([\w-]+)='(.*)'$", pip_config, re.MULTILINE):
            if key in VARIABLES:
                separator = "," if key == "find-links" else " "
                variables[VARIABLES[key]] = separator.join(value.replace("\\n", " ").split())
    return variables


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE):
            return True
    except OSError:
        return False


def run(*command: str, **environment: str) -> bool:
    """Run a command, show its output, and return whether it succeeded."""
    return subprocess.run(command, env=os.environ | environment, cwd=PROJECT).returncode == 0


def pip(*arguments: str) -> bool:
    return run(sys.executable, "-m", "pip", "install", "--quiet", *arguments)


def uv(*arguments: str, **environment: str) -> bool:
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    return run(*command, *arguments, **environment)


def install(groups: list[str]) -> bool:
    """Install the packages of the groups and return whether that succeeded."""
    arguments = [part for name in groups for part in ("--group", name)]
    if platform.system() == "Linux" and answers(f"{CPU_BUILDS}/torch/"):
        print(f"installing torch from {CPU_BUILDS}, without GPU libraries", flush=True)
        arguments += ["--extra-index-url", CPU_BUILDS]
    print(f"installing the pinned packages with {UV}", flush=True)
    if pip(UV):
        pip_config = subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True
        ).stdout
        # Take the best match from all indexes, as pip does: 2.13.0+cpu for 2.13.0.
        options = ["--index-strategy", "unsafe-best-match", "--constraint", str(LOCK)]
        # If imports write no bytecode (PYTHONDONTWRITEBYTECODE, as in many containers), every
        # program would spend seconds at each start on compiling what it imports.
        options += ["--compile-bytecode"] if sys.dont_write_bytecode else []
        if uv(*arguments, *options, **settings_of_pip(pip_config)):
            return True
    print("installing the pinned packages with pip, which takes a minute or two", flush=True)
    return pip(PIP) and pip(*arguments)


def add_to_path() -> None:
    """Add both packages and our plugins for Snakemake to the path of this Python."""
    file = Path(sysconfig.get_path("purelib"), "allcores.pth")
    file.write_text(f"{PROJECT / 'scripts'}\n{PROJECT / 'scripts' / 'plugins'}\n")


if __name__ == "__main__":
    all_groups = tomllib.loads((PROJECT / "pyproject.toml").read_text())["dependency-groups"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(all_groups)
    parser.add_argument("groups", nargs="+", choices=all_groups, metavar="GROUP", help=names)
    if not install(parser.parse_args().groups):
        sys.exit("the packages could not be installed; see above")
    add_to_path()
    sys.path.insert(0, str(PROJECT / "scripts"))
    from allcores.parallel import exchange

    try:
        exchange.build()
    except OSError:  # there is no C compiler, or one without headers
        install(["compiler"])
        exchange.build()
