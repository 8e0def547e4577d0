"""scikit-learn's own networks on the tables that come with it: with the same folds, as good."""

import warnings

import numpy as np
import pytest
from conftest import vary
from sklearn import datasets
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_stack import stack

from allcores_study.config.run import Entry
from allcores_study.data.folds import Assignable

FOLDS, HIDDEN, BATCH, LR = 5, 32, 32, 0.005
# Name -> (epochs, how far apart the means may be: a point of accuracy, 0.02 of R2; whether the
# folds are trained in a stack).
CASES = {
    "breast_cancer": (20, 0.01, True),
    "wine": (20, 0.01, False),
    "diabetes": (20, 0.02, True),
}


def theirs(name, epochs, fold_of, table):
    """The score of scikit-learn's network in each fold."""
    options = {
        **{"hidden_layer_sizes": (HIDDEN,), "batch_size": BATCH, "learning_rate_init": LR},
        **{"alpha": 0, "max_iter": epochs, "n_iter_no_change": epochs, "random_state": 0},
    }
    scores = []
    for fold in range(FOLDS):
        network = MLPClassifier(**options)
        if name == "diabetes":
            network = TransformedTargetRegressor(
                MLPRegressor(**options), transformer=StandardScaler()
            )
        network = make_pipeline(StandardScaler(), network)
        train = fold_of != fold
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            network.fit(table.data[train], table.target[train])
        scores.append(network.score(table.data[~train], table.target[~train]))
    return scores


@pytest.mark.parametrize("name", CASES)
def test_a_table_is_learnt_as_well_as_by_scikit_learns_own_network(laboratory, name):
    epochs, apart, is_stacked = CASES[name]
    numbers = name == "diabetes"
    run = vary(
        dataset=Entry(name, name, {}),
        model=Entry("mlp", "mlp", {"hidden": [HIDDEN]}),
        optimizer=Entry("Adam", "Adam", {"lr": LR}),
        loss=Entry(*2 * ["MSELoss" if numbers else "CrossEntropyLoss"], {}),
        schedule=Entry("constant", "constant", {}),
        **{"batch_size": BATCH, "epochs": epochs, "crop": 0, "flip": False, "folds": FOLDS},
    )
    table = getattr(datasets, f"load_{name}")()
    assignable = Assignable(table.target.astype(float) if numbers else table.target)
    runs = [vary(run, fold=fold) for fold in range(FOLDS)]
    if is_stacked:
        records = [record for record, _ in stack(laboratory, runs)[0]]
    else:
        records = [laboratory.trained(one, f"fold{fold}")[0] for fold, one in enumerate(runs)]
    ours = [record["r2" if numbers else "accuracy"] for record in records]
    assert len(ours) == FOLDS
    rival = theirs(name, epochs, assignable.folds(FOLDS, run.seed), table)
    assert np.mean(ours) > np.mean(rival) - apart
