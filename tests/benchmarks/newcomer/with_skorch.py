"""The same with skorch and scikit-learn: the mean score of each model."""

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from skorch import NeuralNetClassifier

frame = pd.read_csv("patients.csv").drop(columns=["id", "cost"])
inputs, groups = frame.drop(columns=["ill", "hospital"]), frame["hospital"]
labels = (frame["ill"] == "yes").to_numpy(np.int64)
numbers = inputs.select_dtypes("number").columns
encoder = make_column_transformer(
    (StandardScaler(), numbers), remainder=OneHotEncoder(sparse_output=False)
)


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.LazyLinear(64), torch.nn.ReLU(), torch.nn.Linear(64, 2))


network = NeuralNetClassifier(
    Net,
    criterion=torch.nn.CrossEntropyLoss,
    optimizer=torch.optim.Adam,
    max_epochs=20,
    batch_size=32,
    iterator_train__shuffle=True,
    train_split=None,
    verbose=0,
)
to_float = FunctionTransformer(np.float32)
mlp = make_pipeline(encoder, to_float, network)
forest = make_pipeline(encoder, RandomForestClassifier(n_estimators=300))
folds = StratifiedGroupKFold(4, shuffle=True, random_state=0)
inner = StratifiedGroupKFold(3, shuffle=True, random_state=0)
scores = {"mlp": [], "forest": []}
for train, test in folds.split(inputs, labels, groups):
    rates = {"neuralnetclassifier__lr": [0.001, 0.01]}
    search = GridSearchCV(mlp, rates, cv=inner, scoring="roc_auc", n_jobs=-1, error_score="raise")
    search.fit(inputs.iloc[train], labels[train], groups=groups.iloc[train])
    forest.fit(inputs.iloc[train], labels[train])
    for name, model in (("mlp", search), ("forest", forest)):
        chances = model.predict_proba(inputs.iloc[test])[:, 1]
        scores[name].append(roc_auc_score(labels[test], chances))
for name, values in scores.items():
    print(name, np.mean(values))
