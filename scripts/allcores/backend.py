"""The backend `shm` of torch.distributed; see parallel/process_group.py.

import torch.distributed as dist
import allcores.backend          # not needed where the package is installed
dist.init_process_group("shm")
"""

__all__ = ["register"]


def register() -> None:
    """Register the backend with torch, once."""
    from allcores.parallel import process_group

    process_group.register()


# If the package is installed, `import torch` calls register() of this module. So it is defined
# before this import, and torch is imported before process_group.
import torch  # noqa: E402, F401

register()
