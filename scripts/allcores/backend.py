"""The backend `shm` of torch.distributed; see parallel/process_group.py.

import torch.distributed as dist
import allcores.backend          # not needed where the package is installed
dist.init_process_group("shm")
"""

__all__ = ["register"]


def register() -> None:
    """Tell torch of the backend, once."""
    from allcores.parallel import process_group

    process_group.register()


# Where the package is installed, `import torch` asks this module for register(): it has to be there
# by then, and torch before process_group.
import torch  # noqa: E402, F401

register()
