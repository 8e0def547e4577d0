"""The campaign's cross-validation as scikit-learn, skorch and joblib do it: see campaign.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import numpy as np
import torch
from measure import sized
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from skorch import NeuralNetClassifier
from skorch.callbacks import LRScheduler

from allcores.machine import cores
from allcores_study.datasets.digits import load
from allcores_study.models.lenet import lenet


class LeNet(torch.nn.Module):
    """Ours, in the form that skorch asks for."""

    def __init__(self):
        super().__init__()
        self.net = lenet(channels=1, image_size=(32, 32), classes=10)

    def forward(self, images):
        return self.net(images)


if __name__ == "__main__":
    digits = load(None)
    images = np.concatenate(list(digits.chunks)).astype(np.float32)
    images = (images - images.mean()) / images.std()
    net = NeuralNetClassifier(
        LeNet,
        criterion=torch.nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=0.003,
        batch_size=32,
        max_epochs=sized(5, 1),
        iterator_train__shuffle=True,
        train_split=None,
        verbose=0,
        callbacks=[("schedule", LRScheduler(policy="CosineAnnealingLR", T_max=5))],
    )
    schedules = [
        LRScheduler(policy="CosineAnnealingLR", T_max=5),
        LRScheduler(policy=torch.optim.lr_scheduler.CosineAnnealingWarmRestarts, T_0=3),
    ]
    search = GridSearchCV(
        net,
        {"callbacks__schedule": schedules},
        cv=StratifiedKFold(sized(5, 2), shuffle=True, random_state=0),
        scoring="accuracy",
        n_jobs=sized(cores.allowed(), 1),
        refit=False,
        error_score="raise",
    )
    search.fit(images, digits.targets.astype(np.int64))
    print(search.cv_results_["mean_test_score"])
