"""FSDP2: each rank keeps a shard of every weight; torch gathers and scatters them."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.append(str(Path(__file__).parents[2] / "scripts"))  # not needed once it is installed
import allcores.backend  # noqa: F401

dist.init_process_group(sys.argv[1])
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
torch.manual_seed(dist.get_rank())
for _ in range(20):
    x = torch.randn(16, 20)
    loss = torch.nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
mean = loss.detach() / dist.get_world_size()
dist.all_reduce(mean)
if dist.get_rank() == 0:
    print(f"{dist.get_backend()}: loss {mean:.6f}")
dist.destroy_process_group()
