"""The backend `shm` of torch.distributed; see parallel/process_group.py.

import torch.distributed as dist
import allcores.backend          # not needed where the package is installed
dist.init_process_group("shm")
"""

from allcores.parallel.process_group import register

__all__ = ["register"]

register()
