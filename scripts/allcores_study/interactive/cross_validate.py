"""Cross-validation and the comparison of strategies, each in one call from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from allcores_study.config import registry
from allcores_study.config import settings as config_keys
from allcores_study.interactive import data_files, settings, workflow
from allcores_study.interactive.result import Result

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from torch.utils.data import TensorDataset

Data: TypeAlias = "pd.DataFrame | tuple[Any, Any] | TensorDataset | str"


def cross_validate(
    data: Data,
    models: Mapping[str, Any],
    *,
    name: str,
    target: str | list[str] | None = None,
    groups: str | np.ndarray | None = None,
    dataset: Mapping[str, Any] | None = None,
    folds: int | str = 5,
    cores: int | str = "all",
    **keys: Any,
) -> Result:
    """Cross-validate models on all cores, and return the results.

    The call writes NAME.yaml and the data into the working directory and runs the workflow there.
    It resumes what was interrupted and trains only what changed: the same call again returns at
    once. `allcores run --configfile NAME.yaml` continues the same study from a terminal.

        result = cross_validate(
            frame,
            {
                "mlp": dict(hidden=[64], batch_size=32, epochs=20,
                            optimizer=dict(name="adam", lr=[0.001, 0.01])),  # a list: candidates
                "forest": RandomForestClassifier(n_estimators=300),
            },
            target="ill", groups="hospital", name="patients", select=3, metrics=["roc_auc"],
        )
        cross_validate((images, labels), {"net": Net}, name="photos")  # arrays or tensors
        cross_validate("digits", {"lenet": dict(batch_size=64, epochs=5, ...)}, name="first")

    Args:
        data: a DataFrame; (inputs, answers) as arrays or tensors, (n, ...) each; a TensorDataset of
            two tensors; or the name of a built-in dataset. uint8 arrays are images.
        models: label -> the keys of a model's entry in a config, in which `name` may be a class or
            function that Python can import; or only that class or function, trained with
            settings.USUAL; or an estimator with scikit-learn's interface.
        name: of the study, its files and its results.
        target: the column of a DataFrame to predict, or several for regression and multilabel.
        groups: a column of the DataFrame or, for arrays, an array (n,) of integers; samples of one
            group are held out together.
        dataset: other keys of the dataset's entry, such as dict(task="regression").
        folds: number of folds, or "test" for the dataset's own test set.
        cores: number of cores to use, or "all".
        keys: other keys of a study, such as `select`, `seeds` and `metrics`, or of a config, such
            as `precision`; `schedules` and `strategies` may be dicts of entries.

    Raises:
        ValueError: an argument is wrong; a line for each.
        workflow.StudyError: some runs failed.
    """
    file = workflow.file_of(name)
    label = data if isinstance(data, str) else name
    config: dict[str, Any] = {"models": settings.entries("models", models)}
    study: dict[str, Any] = {"datasets": [label], "folds": settings.plain("folds", folds)}
    study["models"] = list(models)
    for key, value in keys.items():
        if key in ("datasets", "studies"):
            raise ValueError(f"{key}: this call makes one study of one dataset; give `data`")
        if key in ("schedules", "strategies"):
            if isinstance(value, Mapping):
                config[key] = settings.entries(key, value)
            study[key] = settings.plain(key, [value] if isinstance(value, str) else [*value])
        elif key in config_keys.Config.model_fields:
            config[key] = settings.plain(key, value)
        else:
            study[key] = settings.plain(key, value)
    if "final" not in keys and workflow.has_final(file, name):
        study["final"] = True  # Result.fit() asked for it
    options = settings.mapping("dataset", {} if dataset is None else dataset)
    entry = data_files.entry(file, data, target, groups, options)
    datasets = {} if entry is None else {"datasets": {label: entry}}
    workflow.write(file, datasets | config | {"studies": {name: study}})
    workflow.run(file, cores, label)
    return Result(name)


def compare_strategies(
    model: Any,
    data: Data,
    *,
    name: str,
    workers: Sequence[int] = (1, 2),
    strategies: Sequence[str] | Mapping[str, Any] | None = None,
    **keys: Any,
) -> Result:
    """Time ways of using the cores for one model, each alone on the machine, and compare scores.

        compare_strategies(Net, (images, labels), workers=[1, 2, 4], name="speed").table

    Args:
        model: as a value of `models` in cross_validate().
        data, name: as in cross_validate().
        workers: numbers of processes.
        strategies: labels, or label -> entry; None: all built-in strategies.
        keys: as in cross_validate(); `folds` is 2 unless given.

    Raises:
        ValueError, workflow.StudyError: see cross_validate().
    """
    strategies = list(registry.strategies()) if strategies is None else strategies
    usual = {"folds": 2, "exclusive": True}
    keys = usual | {"strategies": strategies, "workers": list(workers)} | keys
    return cross_validate(data, {"model": model}, name=name, **keys)
