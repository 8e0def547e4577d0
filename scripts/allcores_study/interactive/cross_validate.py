"""Cross-validation and the comparison of strategies, each in one call from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from allcores.machine import cores
from allcores_study.config import grid, registry
from allcores_study.config import settings as config_keys
from allcores_study.interactive import data_files, settings, workflow
from allcores_study.interactive.result import Result

if TYPE_CHECKING:
    import pandas as pd
    from torch.utils.data import TensorDataset

# Arguments of scikit-learn's functions and keys of a config -> what to give instead.
ELSEWHERE = {
    "cv": "give `folds`: a number, an array or a splitter",
    "scoring": "give `metrics`, such as ['roc_auc']; the first one ranks",
    "n_jobs": "give `cores`; runs share them",
    "random_state": "give `seeds`, such as [0]; each seed repeats the study",
    "verbose": "remove it; a bar shows the progress",
    "datasets": "this call makes one study of one dataset; give `data`",
    "studies": "this call makes one study of one dataset; give `data`",
}

Data: TypeAlias = "pd.DataFrame | tuple[Any, Any] | TensorDataset | str"


def cross_validate(
    data: Data,
    models: Mapping[str, Any],
    *,
    name: str,
    target: Any = None,
    groups: Any = None,
    dataset: Mapping[str, Any] | None = None,
    folds: Any = 5,
    cores: int | str = "all",
    profile: str | None = None,
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
        data: a DataFrame; (inputs, answers) as arrays, tensors or a DataFrame and its answers, (n,
            ...) each; a TensorDataset of two tensors; or the name of a built-in dataset. uint8
            arrays are images.
        models: label -> the keys of a model's entry in a config, in which `name` may be a class or
            function that Python can import; or only that class or function, trained with
            settings.USUAL; or an estimator with scikit-learn's interface.
        name: of the study, its files and its results.
        target: the column of a DataFrame to predict, or several for regression and multilabel.
        groups: a column of the DataFrame, or an array (n,); samples of one group are held out
            together.
        dataset: other keys of the dataset's entry, such as dict(task="regression").
        folds: number of folds; "test" for the dataset's own test set; an array (n,) of the fold of
            each sample, negative for none; or a splitter of sklearn.model_selection.
        cores: number of cores to use, or "all".
        profile: in place of cores: a profile of Snakemake that starts the runs, such as "slurm".
        keys: other keys of a study, such as `select`, `seeds` and `metrics`, or of a config, such
            as `precision`; `schedules` and `strategies` may be dicts of entries.

    Raises:
        ValueError: an argument is wrong; a line for each.
        workflow.StudyError: some runs failed.
    """
    file = workflow.file_of(name)
    label = data if isinstance(data, str) else name
    config: dict[str, Any] = {}
    study: dict[str, Any] = {"datasets": [label], "folds": None, "models": []}
    for key, value in keys.items():
        if key in ELSEWHERE:
            raise ValueError(f"{key}: {ELSEWHERE[key]}")
        if key in ("schedules", "strategies"):
            if isinstance(value, Mapping):
                config[key] = settings.entries(key, value)
            if not isinstance(value, str | Mapping | list | tuple):
                raise ValueError(f"{key}: found {value!r}; expected labels, or {{label: entry}}")
            study[key] = settings.plain(key, [value] if isinstance(value, str) else [*value])
        elif key == "metrics":
            study[key] = settings.names(key, value)
        elif key in config_keys.Config.model_fields:
            config[key] = settings.plain(key, value)
        else:
            study[key] = settings.plain(key, value)
    options = settings.mapping("dataset", {} if dataset is None else dataset)
    with workflow.alone(file):
        if "final" not in keys and workflow.has_final(file, name):
            study["final"] = True  # Result.fit() asked for it
        config["models"] = settings.models(models, partial(data_files.estimator, file))
        study["models"] = [*config["models"]]
        entry, study["folds"] = data_files.entry(file, data, target, groups, folds, options)
        datasets = {} if entry is None else {"datasets": {label: entry}}
        workflow.write(file, datasets | config | {"studies": {name: study}})
        workflow.run(file, cores, label, profile)
        return Result(name)


def compare_strategies(
    model: Any,
    data: Data,
    *,
    name: str,
    workers: int | Sequence[int] = (1, 2),
    strategies: Sequence[str] | Mapping[str, Any] | None = None,
    **keys: Any,
) -> Result:
    """Time ways of using the cores for one model, each alone on the machine, and compare scores.

        compare_strategies(Net, (images, labels), workers=[1, 2, 4], name="speed").table

    Args:
        model: as a value of `models` in cross_validate().
        data, name: as in cross_validate().
        workers: numbers of processes.
        strategies: labels, or label -> entry; None: the built-in strategies that these workers, and
            the servers of some, have cores for. A line says which are left out.
        keys: as in cross_validate(); `folds` is 2 unless given.

    Raises:
        ValueError, workflow.StudyError: see cross_validate().
    """
    workers = [workers] if isinstance(workers, int) else workers
    if strategies is None:
        strategies = _fitting(
            max(workers), None if keys.get("profile") else keys.get("cores", "all")
        )
    usual = {"folds": 2, "exclusive": True}
    keys = usual | {"strategies": strategies, "workers": list(workers)} | keys
    return cross_validate(data, {"model": model}, name=name, **keys)


def _fitting(workers: int, available: int | str | None) -> list[str]:
    """Return the built-in strategies that need no device and no more than the available cores.

    Args:
        available: number of cores, or "all"; None: not known, as those of a cluster.
    """
    count = cores.allowed() if available == "all" else float(available or "inf")
    if workers > count:
        raise ValueError(f"workers: found {workers}; this call has {count:g} cores")
    fitting, left_out = [], []
    # The first one is the baseline.
    known = registry.strategies()
    for name in sorted(known, key=lambda name: name != grid.SERIAL.label):
        found = known[name]
        needed = workers + (found.options or {}).get("servers", 0)
        if found.constants.get("reference"):
            left_out.append(f"{name} (needs a device)")
        elif needed > count and not found.constants.get("one_worker"):
            left_out.append(f"{name} ({needed} cores)")
        else:
            fitting.append(name)
    if left_out:
        print(f"left out: {', '.join(left_out)}; to have them, list them under `strategies`")
    return fitting
