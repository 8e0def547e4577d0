"""Nested cross-validation of a network and a forest on a table, in allcores."""

import pandas as pd
from sklearn.ensemble import RandomForestClassifier

from allcores_study import cross_validate

frame = pd.read_csv("patients.csv").drop(columns=["id", "cost"])
mlp = dict(hidden=[64], epochs=20, batch_size=32, optimizer=dict(name="adam", lr=[0.001, 0.01]))
models = {"mlp": mlp, "forest": RandomForestClassifier(n_estimators=300)}
grouped = dict(target="ill", groups="hospital", folds=4, select=3)
print(cross_validate(frame, models, **grouped, metrics=["roc_auc"], name="patients"))
