"""Train a network in your own loop, with any of the strategies."""

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.append(str(Path(__file__).parents[2] / "scripts"))  # not needed once it is installed
import allcores


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-3)


def train(worker, strategy, epochs):
    torch.manual_seed(0)
    inputs = torch.randn(4096, 20)
    targets = (inputs[:, :2].sum(1) > 0).long()
    model = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 2))
    shared = worker.share(model, adam, strategy)
    began = time.perf_counter()
    for epoch in range(epochs):
        for (x, y), weight in worker.batches((inputs, targets), batch_size=32, epoch=epoch):
            loss = weight * nn.functional.cross_entropy(shared.model(x), y)
            loss.backward()
            shared.step()
        shared.synchronize()
    return worker.mean(loss.item()), time.perf_counter() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", default="shared_memory")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    flags = parser.parse_args()
    found = allcores.run(train, flags.strategy, flags.epochs, workers=flags.workers)
    loss, took = found[0]
    print(f"{flags.strategy}: loss {loss:.6f} after {took:.1f} s")
