"""What everybody copies: the network and training of pytorch/examples' mnist/main.py, timed.

Two convolutions, two dropouts, Adadelta at a learning rate of 1 that falls by 0.7 per epoch, 14
epochs of batches of 64, images through PIL, as many threads as torch takes: that program's
defaults, on the Fashion-MNIST in the folder that the first argument names.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import torch
from torch import nn
from torch.nn import functional

from allcores.machine.any_torchvision import import_torchvision

EPOCHS, LR, GAMMA, BATCH_SIZE = 14, 1.0, 0.7, 64
MEAN, STD = 0.1307, 0.3081


def network():
    """Log-probabilities (n, 10) of images (n, 1, 28, 28)."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 10),
        nn.LogSoftmax(dim=1),
    )


def loader(folder, train):
    transforms = import_torchvision("transforms")
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((MEAN,), (STD,))])
    dataset = import_torchvision("datasets").FashionMNIST(
        folder, train=train, download=True, transform=transform
    )
    return torch.utils.data.DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=train)


@torch.no_grad()
def accuracy(model, batches):
    model.eval()
    right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in batches)
    return right / len(batches.dataset)


if __name__ == "__main__":
    torch.manual_seed(1)
    training, test = loader(sys.argv[1], train=True), loader(sys.argv[1], train=False)
    model = network()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=LR)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=GAMMA)
    seconds = 0.0
    for epoch in range(EPOCHS):
        began = time.perf_counter()
        model.train()
        for images, labels in training:
            optimizer.zero_grad()
            functional.nll_loss(model(images), labels).backward()
            optimizer.step()
        schedule.step()
        seconds += time.perf_counter() - began
        print(epoch + 1, f"{seconds:.1f} {accuracy(model, test):.4f}", flush=True)
