"""The same with Lightning, which leaves cross-validation to its users: the mean score of each."""

import lightning
import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch.utils.data import DataLoader, TensorDataset

frame = pd.read_csv("patients.csv").drop(columns=["id", "cost"])
inputs, groups = frame.drop(columns=["ill", "hospital"]), frame["hospital"].to_numpy()
labels = (frame["ill"] == "yes").to_numpy(np.int64)
numbers = inputs.select_dtypes("number").columns
encoder = make_column_transformer(
    (StandardScaler(), numbers), remainder=OneHotEncoder(sparse_output=False)
)


class Net(lightning.LightningModule):
    def __init__(self, features, rate):
        super().__init__()
        layers = torch.nn.Linear(features, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
        self.net, self.rate = torch.nn.Sequential(*layers), rate

    def training_step(self, batch, _):
        rows, targets = batch
        return torch.nn.functional.cross_entropy(self.net(rows), targets)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.rate)


def score_of_network(train, test, rate):
    rows = torch.tensor(encoder.fit_transform(inputs.iloc[train]), dtype=torch.float32)
    data = TensorDataset(rows, torch.tensor(labels[train]))
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=20,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    net = Net(rows.shape[1], rate)
    trainer.fit(net, DataLoader(data, batch_size=32, shuffle=True))
    rows = torch.tensor(encoder.transform(inputs.iloc[test]), dtype=torch.float32)
    with torch.inference_mode():
        chances = net.net(rows).softmax(dim=1)[:, 1]
    return roc_auc_score(labels[test], chances)


folds = StratifiedGroupKFold(4, shuffle=True, random_state=0)
inner = StratifiedGroupKFold(3, shuffle=True, random_state=0)
scores = {"mlp": [], "forest": []}
for train, test in folds.split(inputs, labels, groups):
    parts = list(inner.split(train, labels[train], groups[train]))
    means = {
        rate: np.mean([score_of_network(train[fit], train[held], rate) for fit, held in parts])
        for rate in (0.001, 0.01)
    }
    scores["mlp"].append(score_of_network(train, test, max(means, key=means.get)))
    forest = RandomForestClassifier(n_estimators=300)
    forest.fit(encoder.fit_transform(inputs.iloc[train]), labels[train])
    chances = forest.predict_proba(encoder.transform(inputs.iloc[test]))[:, 1]
    scores["forest"].append(roc_auc_score(labels[test], chances))
for name, values in scores.items():
    print(name, np.mean(values))
