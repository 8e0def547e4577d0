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

        for file in exchange.SOURCE.parent.glob("exchange_*.so"):  # of earlier versions
            file.unlink()
        has_zig = importlib.util.find_spec("ziglang")
        exchange.build(*[exchange.ZIG] if has_zig else [])
        system = "manylinux_2_17" if has_zig else "linux"
        build_data["tag"] = f"py3-none-{system}_{platform.machine()}"
        build_data["pure_python"] = False
