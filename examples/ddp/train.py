"""Train a network with DistributedDataParallel under torchrun, over a given backend."""

import argparse
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

sys.path.append(str(Path(__file__).parents[2] / "scripts"))  # not needed once it is installed
import allcores.backend  # noqa: F401


def main(backend, epochs):
    dist.init_process_group(backend)
    torch.manual_seed(0)
    inputs = torch.randn(4096, 20)
    data = TensorDataset(inputs, (inputs[:, :2].sum(1) > 0).long())
    sampler = DistributedSampler(data)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 2))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    began = time.perf_counter()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=16, sampler=sampler):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
    took, mean = time.perf_counter() - began, loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"{backend}: loss {mean:.6f} after {took:.1f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backend", nargs="?", default="shm", choices=("shm", "gloo"))
    parser.add_argument("--epochs", type=int, default=5)
    flags = parser.parse_args()
    main(flags.backend, flags.epochs)
