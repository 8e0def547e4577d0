"""Lightning: its DDPStrategy passes on the name of the backend."""

import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

sys.path.append(str(Path(__file__).parents[2] / "scripts"))  # not needed once it is installed
from allcores.machine import any_torchvision

any_torchvision.import_torchvision("ops")  # this project's torchvision has no operators of its own
import lightning  # noqa: E402
from lightning.pytorch.strategies import DDPStrategy  # noqa: E402

import allcores.backend  # noqa: E402, F401


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
        )

    def loss(self, batch):
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def training_step(self, batch, number):
        return self.loss(batch)

    def validation_step(self, batch, number):
        self.log("loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


torch.manual_seed(0)
inputs = torch.randn(512, 20)
data = TensorDataset(inputs, (inputs[:, 0] > 0).long())
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy=DDPStrategy(process_group_backend=sys.argv[1]),
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Net(), DataLoader(data, batch_size=16), DataLoader(data, batch_size=64))
if trainer.is_global_zero:
    print(f"{torch.distributed.get_backend()}: loss {trainer.callback_metrics['loss']:.6f}")
