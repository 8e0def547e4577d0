"""The usual PyTorch loop: a DataLoader with torchvision's transforms, one image at a time."""

import time

import torch
from PIL import Image

from allcores.machine.any_torchvision import import_torchvision

transforms = import_torchvision("transforms")


class OneByOne(torch.utils.data.Dataset):
    """As torchvision's CIFAR10, through PIL; images (N, C, H, W) uint8, labels (N,)."""

    def __init__(self, images, labels, mean, std, crop=4):
        self.pictures, self.labels = images.transpose(0, 2, 3, 1).copy(), labels
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(images.shape[-1], padding=crop),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(mean.tolist(), std.tolist()),
            ]
        )

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.pictures[index])), int(self.labels[index])


def batches(dataset, batch_size):
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size, shuffle=True)


def epoch_seconds(model, batches):
    """How long one epoch with SGD and momentum takes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    began = time.perf_counter()
    for images, targets in batches:
        torch.nn.functional.cross_entropy(model(images), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    return time.perf_counter() - began
