"""The keys of a config: what each means, which values it takes, and its default.

Checks here see one entry at a time. Names, options and what must fit together are checked in
checks.py. docs/manual.py writes the schema for editors, docs/config.md and the comments of
config/config.yaml from here. A list or a range where a key of a model takes one value is a sweep,
see sweeps.py.
"""

from __future__ import annotations

import functools
import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
)
from pydantic_core import PydanticCustomError

from allcores_study.config import component

T = TypeVar("T")
LABEL, LONGEST_LABEL = "^[A-Za-z0-9][A-Za-z0-9_.-]*$", 60


class Keys(BaseModel):
    """Keys and values; no other keys."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        alias_generator=lambda name: name.rstrip("_"),  # `import` is a word of Python's
    )


class OpenKeys(Keys):
    """Other keys are options of what the entry names, and are checked by its signature."""

    model_config = ConfigDict(extra="allow")


def _form(value: Any) -> str:
    is_range = isinstance(value, dict) and not value.keys().isdisjoint(("range", "log"))
    return "list" if isinstance(value, list) else "range" if is_range else "one"


def _differ(values: list[T]) -> list[T]:
    if len({repr(value) for value in values}) < len(values):
        raise PydanticCustomError("repeated", "nothing may be listed twice")
    return values


def key(text: str, *examples: Any, default: Any = None) -> Any:
    """Return the Field of a key that may be left out.

    Args:
        text: what it means, as editors and docs/config.md show it.
        examples: values that the comments of config/config.yaml show.
    """
    return Field(default=default, description=text, examples=list(examples) or None)


def required(text: str) -> Any:
    return Field(description=text)


class Range(Keys):
    """Values between two numbers, see ranges.py."""

    range: list[float] = key("Both ends; whole numbers between them, if both are")
    log: list[float] = key("Both ends; ratios, not differences, are equally likely")
    step: float = key("Distance between values of `range`")


Label = Annotated[str, StringConstraints(pattern=LABEL, max_length=LONGEST_LABEL)]
Count = Annotated[int, Field(ge=1)]
Above0 = Annotated[float, Field(gt=0)]
Listed = Annotated[
    list[T], Field(min_length=1, json_schema_extra={"uniqueItems": True}), AfterValidator(_differ)
]
Swept = Annotated[
    Annotated[T, Tag("one")]
    | Annotated[list[T], Field(min_length=1), Tag("list")]
    | Annotated[Range, Tag("range")],
    Discriminator(_form),
]
Precision = Literal["fp32", "bf16"]
MemoryFormat = Literal["contiguous", "channels_last"]


class Optimizer(OpenKeys):
    """Option of the optimizer."""

    name: str
    lr: Swept[Above0] = required(
        "Learning rate at which schedules start, or to which `warm_up` and `onecycle` rise. YAML "
        "reads 1e-3 as text, so write 0.001 or 1.0e-3"
    )


class Loss(OpenKeys):
    """Option of the loss."""

    name: str = key("Name of a built-in one")
    import_: str = key(
        'Import path of your own loss: "module:class" for a class like torch\'s, or '
        '"module:function" for a function of scores and targets. It replaces `name`; all other '
        "keys are its options",
    )
    label_smoothing: Swept[float] = key(
        "For cross_entropy: the part of the target that is spread over all classes", 0.1
    )
    weight: Any = key("`balanced` makes rare classes count as much as frequent ones", "balanced")


class Augmentation(OpenKeys):
    """Option of your own function."""

    import_: str = key(
        'Import path "module:function" of your own augmentation, a function of inputs '
        "and a generator",
    )
    crop: Swept[Annotated[int, Field(ge=0, le=127)]] = key(
        "Pad images by this many pixels, then cut out a random window of the original size"
    )
    flip: Swept[bool] = key("Mirror a random half of the images; not for digits")


class Network(OpenKeys):
    """Every other key is an option of the model itself."""

    name: str = key("Name of the built-in model. Default: the label")
    import_: str = key(
        'Import path "module:class" of your own model, or of an estimator with '
        "scikit-learn's interface. It replaces `name`",
    )
    batch_size: Swept[Count] = required("Samples per step, over all workers together")
    epochs: Swept[Count] = required("Passes over the training samples")
    optimizer: Optimizer = required(
        "Name and options of an optimizer in torch.optim, except LBFGS, Muon and SparseAdam"
    )
    loss: Loss = key(
        "Name and options of a torch loss that compares scores with targets; for pixels also "
        "`dice`. Default: cross_entropy for classes and pixels, mse for numbers, "
        "bce_with_logits for several labels"
    )
    options: dict[str, Any] = key(
        "Options of the model itself that have the name of another key of an entry, such as "
        "`epochs`. They are passed on unchanged, so lists in them are not sweeps"
    )
    clip_norm: Swept[Above0] = key(
        "Scale larger gradients down to this norm. Default: no limit", 1.0
    )
    ema: Swept[Annotated[float, Field(gt=0, lt=1)]] = key(
        "Keep the moving average of the weights, with this decay per step. Default: keep the final "
        "weights",
        0.99,
    )
    validation: Swept[Annotated[float, Field(gt=0, le=0.5)]] = key(
        "Hold back this part of the training samples, and keep the weights of the epoch with the "
        "smallest loss on it. With groups, this part of the groups is held back, so the share of "
        "the samples may differ. Default: train on all samples and keep the final weights",
        0.1,
    )
    patience: Swept[Count] = key(
        "With `validation`: stop after this many epochs without a smaller loss. Default: never", 5
    )
    augmentation: Augmentation = key(
        "Random changes of training samples; `crop` and `flip` are for images. Default: none"
    )
    memory_format: Swept[MemoryFormat] = key(
        "Layout of images and weights in memory. `[contiguous, channels_last]` trains the model in "
        "both. Default: `memory_format` of the config; without it, what the file of a built-in "
        "model names, else contiguous",
        "channels_last",
    )
    precision: Swept[Precision] = key(
        "Precision of the forward and backward pass; `[fp32, bf16]` trains the model in both. "
        "Default: `precision` of the config",
        "bf16",
    )
    sample: Any = key(
        "Number of candidates to draw from the lists and ranges of this entry, or a mapping of "
        "`count` and `seed`. Default: the whole grid"
    )


class Estimator(OpenKeys):
    """An estimator with scikit-learn's interface; all keys but these are its options."""

    # An editor cannot see what `import` names.
    model_config = ConfigDict(json_schema_extra={"not": {"required": ["optimizer"]}})

    import_: str = required("Import path of the class, or of a function that returns an estimator")
    sample: Any = key("As of a network")


def kind_of_model(entry: Any) -> str:
    is_estimator = isinstance(entry, dict) and component.is_estimator(entry)
    return "estimator" if is_estimator else "network"


Model = Annotated[
    Annotated[Network, Tag("network")] | Annotated[Estimator, Tag("estimator")],
    Discriminator(kind_of_model),
]


class Part(OpenKeys):  # a schedule, a strategy or a dataset
    name: str = key("Name of a built-in one. Default: the label")
    path: Annotated[str, Field(min_length=1)] = key("File or folder of a dataset")


class Reference(Keys):
    model: str
    label: str
    cores: Count = key("That it took")
    seconds: Above0 = key("Elapsed, for a number of `images`")
    images: Count = key("Trained in that time")
    score: float = key("Value of the first metric")


class Study(Keys):
    datasets: Listed[str] = required("Labels of datasets, or names of built-in ones")
    folds: Annotated[int, Field(ge=2)] | Literal["test"] = required(
        "Number of folds for cross-validation, or `test` to score on the dataset's own test set"
    )
    models: Listed[str] = required("Labels of models")
    schedules: Listed[str] = key(
        "Labels of schedules, or names of built-in ones", default=["constant"]
    )
    strategies: Listed[str] = key(
        "Labels of strategies, or names of built-in ones", default=["serial"]
    )
    select: Annotated[int, Field(ge=2)] = key(
        "Nested cross-validation for a sweep. In each fold, every candidate is scored on this many "
        "inner folds of the training set. The best one is trained on the whole training set and "
        "scored once on the test fold",
        3,
    )
    final: bool = key(
        "Also train each model once on all samples, by the first strategy, seed and number of "
        "workers, threads, cores and nodes, as the model to use. With `select`, the "
        "hyperparameters are chosen in the same way. `studies/NAME/final/` has these models, with "
        "the score of the cross-validation as what to expect. The dataset's own test set stays out",
        default=False,
    )
    workers: Listed[Count] = key(
        "Processes that train. Strategies that take only one worker ignore it", default=[1]
    )
    nodes: Count | Listed[Count] = key(
        "Number of cluster machines for each run, with `workers` processes on each; a number or a "
        "list",
        default=[1],
    )
    threads_per_worker: Listed[Count] = key(
        "Threads of each process; a run takes processes x threads cores", default=[1]
    )
    cores: Listed[Count] = key(
        "Number of cores for each strategy, instead of `workers` and `threads_per_worker`. The "
        "cores go to workers and servers with one thread each, or to the threads of a strategy "
        "that takes only one worker"
    )
    seeds: Listed[Annotated[int, Field(ge=0, le=2**32 - 1)]] = key(
        "Each seed draws other folds, initial weights, sample orders and augmentations. Folds stay "
        "the same if they follow time, or if there are too few groups for other ones",
        default=[0],
    )
    train_sizes: Listed[Count | Literal["all"]] = key(
        "Number of samples to train on, or `all`. Larger sets contain the smaller ones",
        default=["all"],
    )
    curves: bool = key(
        "Also score the test fold after every epoch. This does not count as training time. Turning "
        "it on reruns the runs that lack it; turning it off reruns nothing",
        default=False,
    )
    exclusive: bool = key(
        "Give each run the machine to itself, for timings. Otherwise, runs are packed onto the "
        "cores. Turning it on reruns the runs that lack it. Turning it off reruns nothing, with "
        "one exception: small networks are stacked again when they are no longer timed",
        default=False,
    )
    oversubscribe: bool = key(
        "With `exclusive`: allow runs with more processes than cores. Tables and figures mark them",
        True,
        default=False,
    )
    metrics: Listed[str] = key(
        "Metrics in the report. The first one ranks the models and selects candidates. Default: "
        "[accuracy] for classes, [accuracy, roc_auc] for two classes, [r2, rmse, mae] for a "
        "number, [r2] for several numbers, [micro_f1, macro_f1, mean_average_precision] for "
        "several labels, [mean_iou, pixel_accuracy] for pixels. "
        '"my_metrics:top2" is your own, like those in scripts/allcores_study/analysis/measures.py. '
        "Learning curves show the first of the defaults",
        ["accuracy", "log_loss"],
    )
    baseline: str = key(
        "Strategy that speeds and scores are compared with, on its fewest cores. Default: the "
        "first strategy"
    )
    target_accuracy: Annotated[float, Field(gt=0, le=1)] = key(
        "With `curves`: report the epochs and seconds until a run reaches this accuracy on its "
        "test fold",
        0.95,
    )
    against: str = key(
        "Compare this packed study with the same runs in another study, which must be `exclusive`",
        "other",
    )
    references: Annotated[list[Reference], Field(min_length=1)] = key(
        "Published results to show beside those measured here. Each has `model` and `label`, with "
        "a `score` of the first metric, the elapsed `seconds` for a number of `images`, or both",
        [
            {
                **{"model": "lenet", "label": "a cluster", "cores": 4, "seconds": 239},
                **{"images": 1000, "score": 0.98},
            }
        ],
    )


def _section(text: str, **more: Any) -> Any:
    return Field(description=text, **more)


class Config(Keys):
    """A config of allcores."""

    models: dict[Label, Model] = _section(
        "The models to train, and how. The key of an entry is its label in studies, tables and "
        "paths. Changing an entry retrains only its own runs. A network requires `batch_size`, "
        "`epochs` and `optimizer`; an estimator has none of these keys.",
        min_length=1,
    )
    schedules: dict[Label, Part | None] = _section(
        "Learning-rate schedules. A built-in schedule needs an entry only for options or for a "
        "label of your own.",
        default={},
    )
    strategies: dict[Label, Part | None] = _section(
        "Ways to share the work of a run between processes. A built-in strategy needs an entry "
        "only for options or for a label of your own. config/strategies.yaml shows many of their "
        "options.",
        default={},
    )
    datasets: dict[Label, Part | None] = _section(
        "The data to train on. A built-in dataset needs an entry only for options or for a label "
        "of your own.",
        default={},
    )
    studies: dict[Label, Study] = _section(
        "Each study is a grid: every combination of its lists is trained on every fold. A run that "
        "belongs to two studies is trained once. Each study has its own tables, figures and "
        "report.",
        min_length=1,
    )
    precision: Precision = key(
        "Precision of the forward and backward pass, for networks whose entry does not set it. "
        "Weights, gradients and scores are fp32. bf16 is faster for many convolutional networks on "
        "processors with instructions for it, and takes minutes per step on others. Changing it "
        "retrains these networks.",
        default="fp32",
    )
    memory_format: MemoryFormat = key(
        "Layout of images and weights in memory, for networks whose entry does not set it. "
        "Default: what the file of a built-in model names, else contiguous. Changing it retrains "
        "these networks.",
        "contiguous",
    )
    pinning: bool = key(
        "Pin each process of a run to cores that no other run uses. With `false`, the operating "
        "system may move processes. Changing it reruns nothing.",
        default=True,
    )
    timeout: Above0 = key(
        "End a run if none of its ranks makes progress for this many seconds. Progress is a step, "
        "an exchange or the end of an epoch. The error names the rank that hangs. Changing it "
        "reruns nothing.",
        default=600,
    )
    checkpoint_minutes: Above0 = key(
        "Save a checkpoint after this many minutes, even within an epoch. Runs also save when they "
        "are told to stop and after epochs, though not after every short one. Changing it reruns "
        "nothing.",
        default=10,
    )
    runs_per_job: Count = key(
        "Number of short runs, which take seconds, in each job. 1 gives each run its own job. "
        "Default: as many as take about ten seconds together, but at least one job for each core, "
        "or four if runs differ in kind; on a cluster, as many as take half a minute to ten "
        "minutes. Changing it reruns nothing.",
        20,
    )
    downloads: Annotated[str, Field(min_length=1)] = key(
        "Folder for downloaded files, with one subfolder for each dataset. A relative path starts "
        "where you run `snakemake`. You can also put the files there by hand. Changing it reruns "
        "nothing.",
        default="results/downloads",
    )


# Keys of an expanded config that no file has. The candidates of its sweeps: label of each ->
# {"family": the label in the file, "values": {key: value}}; and their entries as the file has them:
# family -> entry. See sweeps.py.
SWEPT, WRITTEN = "swept", "written"


def with_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config with the defaults of its keys and of the keys of its studies filled in."""

    def filled(entry: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
        return entry | {k: value for k, value in defaults(model).items() if k not in entry}

    studies = {name: filled(study, Study) for name, study in config["studies"].items()}
    return filled(config, Config) | {"studies": studies}


def without_defaults(study: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a study without the keys that have their defaults."""
    usual = defaults(Study)
    return {key: value for key, value in study.items() if key not in usual or value != usual[key]}


@functools.cache
def defaults(model: type[BaseModel]) -> dict[str, Any]:
    """Return key -> default of the keys that have one."""
    fields = model.model_fields.items()
    return {
        name: field.default
        for name, field in fields
        if not field.is_required() and field.default is not None
    }


def is_label(text: str) -> bool:
    """Return whether a text can be the name of a study, a model or a dataset."""
    return len(text) <= LONGEST_LABEL and re.fullmatch(LABEL, text) is not None
