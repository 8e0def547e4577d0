"""Accelerate: it uses the existing process group, but would refuse the name of the backend."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

sys.path.append(str(Path(__file__).parents[2] / "scripts"))  # not needed once it is installed
import allcores.backend  # noqa: F401

dist.init_process_group(sys.argv[1])  # before Accelerator
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
inputs = torch.randn(512, 20)
data = TensorDataset(inputs, (inputs[:, 0] > 0).long())
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
model, optimizer, batches = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=16))
for x, y in batches:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
mean = accelerator.gather(loss.detach()[None]).mean()
accelerator.print(f"{dist.get_backend()}: loss {mean:.6f}")
dist.destroy_process_group()
