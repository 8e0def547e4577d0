"""What the wheel of allcores depends on, and its compiled part: called by hatchling."""

import importlib.util
import platform
import sys
import tomllib
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class Dependencies(MetadataHookInterface):
    """Takes groups of packages of pyproject.toml, see [tool.hatch.metadata.hooks.custom]."""

    def update(self, metadata):
        groups = tomllib.loads(Path(self.root, "pyproject.toml").read_text())["dependency-groups"]
        library = groups["library"]
        # The library joins programs that have their own torch, which a pin would replace.
        metadata["dependencies"] = [package.replace("==", ">=") for package in library]
        workflow = [package for package in groups["run"] if isinstance(package, str)]
        metadata["optional-dependencies"] = {"workflow": [*library, *workflow]}


class Exchange(BuildHookInterface):
    """Compiles scripts/allcores/parallel/exchange.c, see [tool.hatch.build.targets.wheel.hooks]."""

    def initialize(self, version, build_data):
        sys.path.insert(0, str(Path(self.root, "scripts")))
        from allcores.parallel import exchange

        machine = platform.machine()
        if importlib.util.find_spec("ziglang"):  # for every Linux with glibc since 2014
            target, system = f"{machine}-linux-gnu.2.17", "manylinux_2_17"
            exchange.build([*exchange.ZIG, "-target", target])
        else:
            system = "linux"
            exchange.build()
        build_data["tag"] = f"py3-none-{system}_{machine}"
        build_data["pure_python"] = False
