"""What the wheel of allcores depends on: the packages of the group `run` in pyproject.toml."""

import tomllib
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Dependencies(MetadataHookInterface):
    """Called by hatchling, see [tool.hatch.metadata.hooks.custom]."""

    def update(self, metadata):
        content = tomllib.loads(Path(self.root, "pyproject.toml").read_text())
        metadata["dependencies"] = content["dependency-groups"]["run"]
