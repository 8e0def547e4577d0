"""The backend `shm` of torch.distributed; see parallel/process_group.py.

import torch.distributed as dist
import allcores.backend
dist.init_process_group("shm")
"""

from allcores.parallel.process_group import register

__all__ = ["register"]

register()
