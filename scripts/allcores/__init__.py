"""Train on every core, and measure which way of using them is fastest. docs/adding.md says what
each folder is for, and which others it may import."""

from allcores.version import __version__

__all__ = ["__version__"]
