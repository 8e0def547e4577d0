"""What the wheel of allcores depends on: groups of packages in pyproject.toml."""

import tomllib
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Dependencies(MetadataHookInterface):
    """Called by hatchling, see [tool.hatch.metadata.hooks.custom]."""

    def update(self, metadata):
        groups = tomllib.loads(Path(self.root, "pyproject.toml").read_text())["dependency-groups"]
        library = groups["library"]
        # The library joins programs that have their own torch, which a pin would replace.
        metadata["dependencies"] = [package.replace("==", ">=") for package in library]
        workflow = [package for package in groups["run"] if isinstance(package, str)]
        metadata["optional-dependencies"] = {"workflow": [*library, *workflow]}
