"""Collectives of torch.distributed by the backend `shm` against gloo, and DDP's steps by both."""

from functools import partial

import torch
import torch.distributed as dist
from measure import sized
from side_by_side import compare, worker_counts
from training_step import alternatives as steps

from allcores.parallel.process_group import of_workers

LENGTHS = sized((1 << 10, 62_000, 3_200_000, 25_600_000, 1 << 26), (1000,))


class Lines(torch.nn.Module):
    """A network of sequences, for which an image is one of 32 lines of 96 numbers."""

    def __init__(self, channels, image_size, classes):
        super().__init__()
        self.classify = torch.nn.Linear(256, classes)
        self.make()

    def forward(self, images):
        lines = images.transpose(1, 2).flatten(2)
        return self.classify(self.encoded(lines).mean(1))


class LSTM(Lines):
    """Two layers."""

    def make(self):
        self.layers = torch.nn.LSTM(96, 256, 2, batch_first=True)

    def encoded(self, lines):
        return self.layers(lines)[0]


class Transformer(Lines):
    """An encoder of four layers."""

    def make(self):
        self.embed = torch.nn.Linear(96, 256)
        layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 4)

    def encoded(self, lines):
        return self.layers(self.embed(lines))


STEPS = [
    ("LeNet", "lenet", 16, "contiguous"),
    ("LSTM", LSTM, 8, "contiguous"),
    ("LSTM", LSTM, 64, "contiguous"),
    ("transformer", Transformer, 8, "contiguous"),
    ("transformer", Transformer, 64, "contiguous"),
    ("MobileNet", "mobilenet", 8, "channels_last"),
    ("MobileNet", "mobilenet", 32, "channels_last"),
    ("VGG-19", "vgg19", 8, "channels_last"),
    ("VGG-19", "vgg19", 32, "channels_last"),
][: sized(None, 1)]
STRATEGIES = {
    "no exchange": ("serial", {}),
    "ddp by gloo": ("ddp", {}),
    "ddp by shm": ("ddp", {"backend": "shm"}),
    "shared_memory": ("shared_memory", {}),
}


def all_reduce(vector, parts, group):
    dist.all_reduce(vector, group=group)


def all_gather(vector, parts, group):
    dist.all_gather_into_tensor(vector, parts[dist.get_rank()], group=group)


def reduce_scatter(vector, parts, group):
    dist.reduce_scatter_tensor(parts[dist.get_rank()], vector, group=group)


def alternatives(collective, length, world):
    vector = torch.ones(length - length % world.workers)
    parts = [part.clone() for part in vector.chunk(world.workers)]
    groups = {name: of_workers(world, name) for name in ("gloo", "shm")}
    return {name: partial(collective, vector, parts, group) for name, group in groups.items()}


def cases():
    for workers in worker_counts():
        for collective in (all_reduce, all_gather, reduce_scatter):
            for length in LENGTHS:
                what = f"{collective.__name__}, {length:,} floats"
                yield what, workers, partial(alternatives, collective, length)
    for label, name, batch, memory_format in STEPS:
        made = partial(steps, name, batch, memory_format, strategies=STRATEGIES)
        yield f"{label}, {batch} images each", 2, made


if __name__ == "__main__":
    compare("backend", cases())
