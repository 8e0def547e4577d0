"""How a study was made, in two paragraphs that can be pasted into a paper. No torch."""

import shutil
import subprocess

import numpy as np
import pandas as pd

import allcores
from allcores import programs
from allcores.analysis import tidy
from allcores.analysis.selection import SWEPT_COLUMN
from allcores.analysis.wording import comma_separated, count
from allcores.study import grid, registry

MOST_CLASSES = 12  # that are listed
STANDARDISED = "standardised by mean and standard deviation of the training part"
REFERENCE = "Nadeau and Bengio's corrected resampled t-test (Machine Learning 52, 2003)"
# As CITATION.cff has it.
BIBTEX = f"""@misc{{allcores,
  author = {{{{The allcores authors}}}},
  title  = {{allcores: train neural networks on every CPU core,
            and see which way of using them is fastest}},
  year   = {{2026}},
  note   = {{Version {allcores.__version__}}}
}}"""


def paragraphs(frames, runs, facts, infos):
    """What was trained and how it was compared; how it was timed, where, and with what.

    Args:
        frames: name of a tidy CSV or table -> its frame.
        runs: the study.run.Run objects of the study.
        infos: label of a dataset -> content of its dataset.json.
    """
    yield " ".join(
        [
            *(f"{label}: {_of_data(info)}." for label, info in infos.items()),
            *_training(frames["runs"], runs, facts),
            *_selection(frames["candidates"], frames["runs"], runs, facts),
            *_comparison(frames, facts),
        ]
    )
    yield " ".join(_timing(frames["runs"]))


def _training(rows, runs, facts):
    by_label = {run.model.label: run for run in runs}
    # The rows of chosen candidates have the name of the sweep; each has a row, unless some failed.
    is_whole = len(rows) == len(runs)
    labels = [run.model.label for run in runs] if is_whole else rows["model"]
    counts = rows["parameters"].groupby(np.array(labels)).agg(["min", "max"])
    models = [of_model(run) + _of_parameters(counts, label) for label, run in by_label.items()]
    yield f"Models: {'; '.join(models)}."
    networks = [run for run in runs if not run.is_estimator]
    schedules = dict.fromkeys(_named(run.schedule.label, run.schedule.options) for run in networks)
    setups = dict.fromkeys(map(_setup, networks))
    if networks:
        yield f"Learning-rate schedule: {'; '.join(schedules)}."
        yield f"Setups: {comma_separated(setups)}; batch sizes count all workers together. All"
        yield "setups start from the same weights and train on the same samples in the same order,"
        yield "batch by batch."
    if len(networks) < len(runs):
        yield "The estimators of scikit-learn's interface were fitted to the same training samples,"
        yield "scaled in the same way, and scored on the same held-out samples."
    imputed = {run.dataset.label for run in runs if run.dataset.options.get("missing") == "mean"}
    for dataset, of_dataset in rows.groupby("dataset", sort=False):
        means = "; missing numbers were replaced by their mean in the training part, and missing "
        means += "texts counted as no category"
        yield f"{dataset}: {_split(of_dataset, facts)}{means if dataset in imputed else ''}."
    folds = "" if rows["ordered"].all() else "folds, "
    decided = ["initial weights, the order of samples and augmentations"] if networks else []
    decided += ["the random state of estimators"] if len(networks) < len(runs) else []
    yield f"The seed determines {folds}{' and '.join(decided)}."
    seeds, total = count(rows["seed"].nunique(), "seed"), count(len(rows), "run")
    yield f"With {seeds}, there {'was' if len(rows) == 1 else 'were'} {total}."


def _of_parameters(counts, label):
    """How many parameters a model has, in words; "": that is not known.

    Args:
        counts: model -> "min" and "max" of its runs.
    """
    if label not in counts.index or pd.isna(counts["max"][label]):
        return ""
    return f", {_range(counts.loc[label].astype(int))} parameters"


def _of_data(info):
    """The samples of a dataset and how networks get them, in words."""
    samples, *shape = info["shape"]
    kinds = [column["category"] is not None for column in info["columns"] or []]
    names = {column["name"] for column in info["columns"] or [] if column["category"] is not None}
    if kinds:
        parts = [count(kinds.count(False), "number")] if False in kinds else []
        parts += [f"{count(len(names), 'column')} of categories, one-hot encoded"] if names else []
        inputs = f"{samples:,} rows of {' and '.join(parts)}"
    elif vocabulary := info["vocabulary"]:
        inputs = f"{samples:,} sequences of up to {shape[0]:,} {vocabulary['kind']}"
        if vocabulary["words"]:
            known = "the most frequent of the training part are known"
            inputs += f", of which {known}, {vocabulary['most']:,} at most"
    else:
        inputs = f"{samples:,} samples of {' x '.join(map(str, shape))} {info['dtype']} values"
    how = ", not scaled"
    if info["scale"]:
        how = f", {'channels' if len(shape) > 1 else 'numbers'} {STANDARDISED}"
    if info["vocabulary"] or (kinds and False not in kinds):
        how = ""  # there are no numbers
    return inputs + how + _of_targets(info)


def _of_targets(info):
    """The targets of a dataset, in words."""
    if not info["classes"]:
        is_scaled = registry.tasks()[info["task"]].constants["IS_SCALED"]
        names, task = info["output_names"], registry.tasks()[info["task"]].constants
        predicted = task.get("PREDICTED", "{names} are predicted")
        is_told = bool(names) or "{names}" not in predicted
        said = f"; {predicted.format(names=comma_separated(names or []))}" * is_told
        return said + f"; targets {STANDARDISED} for training" * is_scaled
    pairs = zip(info["classes"], info["class_counts"], strict=True)
    listed = [f"{name}: {number:,}" for name, number in pairs]
    if len(listed) > MOST_CLASSES:
        least, most = min(info["class_counts"]), max(info["class_counts"])
        listed = [f"{least:,} to {most:,} samples each"]
    return f"; {len(info['classes'])} classes ({comma_separated(listed)})"


def of_model(run):
    """The model of a Run and how it is trained, in words."""
    augmentation = [f"random crops after padding by {run.crop}"] if run.crop else []
    augmentation += ["random flips"] if run.flip else []
    if run.augmentation:
        own = _named(run.augmentation.name.replace(":", "."), run.augmentation.options)
        augmentation.append(f"samples augmented by {own}")
    options = [f"{key} {value}" for key, value in run.model.options.items()]
    if run.is_estimator:
        return f"{run.model.label} ({', '.join([run.model.name.replace(':', '.'), *options])})"
    parts = [
        *options,
        _named(run.optimizer.name, run.optimizer.options),
        f"batches of {run.batch_size}",
        count(run.epochs, "epoch"),
        _named(run.loss.name, run.loss.options),
        *augmentation,
        *_additions(run),
    ]
    return f"{run.model.label} ({', '.join(parts)})"


def _named(name, options):
    """Something and its options, in words."""
    words = {"lr": "learning rate", "weight": "class weights"}
    options = [f"{words.get(key, key.replace('_', ' '))} {value}" for key, value in options.items()]
    return f"{name} with {comma_separated(options)}" if options else name


def _additions(run):
    if run.clip_norm is not None:
        yield f"gradients clipped at a norm of {run.clip_norm:g}"
    if run.ema is not None:
        yield f"an exponential moving average of the weights with decay {run.ema:g}"
    if run.validation is not None:
        part = f"{100 * run.validation:g} % of the training part, held back for this"
        yield f"the weights after the epoch with the lowest loss on {part}"
    if run.patience is not None:
        yield f"stopped after {count(run.patience, 'epoch')} without improvement"


def _setup(run):
    threads = run.threads_per_worker
    return (
        f"{run.strategy.label} with {count(run.workers, 'worker')}"
        + (f" on {run.nodes} nodes" if run.nodes > 1 else "")
        + (f" and {count(run.servers, 'server')}" if run.servers else "")
        + ("" if threads == 1 else f" of {threads} threads each")
    )


def _split(rows, facts):
    trained, scored = _range(rows["train_samples"]), _range(rows["held_out_samples"])
    split = rows["split"].iloc[0]
    folds = split.rpartition(" ")[2]
    if split == "test":
        how = "the dataset's own test set was held out"
    elif rows["ordered"].any():
        how = f"{folds} folds, each scored after training on the earlier ones"
    else:
        how = f"{facts.stratified}{folds}-fold cross-validation"
        how += ", groups held out as a whole" if rows["grouped"].any() else ""
    return f"{how}, {trained} samples to train on, {scored} held out"


def _range(values):
    least, most = values.min(), values.max()
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _selection(candidates, rows, runs, facts):
    """How candidates were chosen.

    Args:
        rows: a row per run.
        runs: the study.run.Run objects of the study.
    """
    chosen = candidates[candidates["chosen"].notna()]
    for (model, dataset), of_model in chosen.groupby(["model", "dataset"], sort=False):
        keys = [
            name.removeprefix(SWEPT_COLUMN) for name in of_model if name.startswith(SWEPT_COLUMN)
        ]
        columns = {key: of_model[f"{SWEPT_COLUMN}{key}"] for key in keys}
        keys = [key for key, values in columns.items() if values.nunique(dropna=False) > 1]
        folds = of_model["inner_folds"].iloc[0]
        is_ordered = rows.loc[rows["dataset"] == dataset, "ordered"].any()
        inner = (
            f"{folds:.0f} inner folds, each scored after training on the earlier ones,"
            if is_ordered
            else f"{folds:.0f}-fold cross-validation"
        )
        candidates = set(of_model["candidate"])
        held_back = {run.validation for run in runs if run.model.label in candidates} - {None}
        part = "all of it except its validation part" if held_back else "all of it"
        yield f"{comma_separated(keys)} of {model} {'was' if len(keys) == 1 else 'were'} chosen"
        drawn = dict(facts.drawn).get(model, "")
        where = f" on {dataset}" if chosen["dataset"].nunique() > 1 else ""
        number = of_model.groupby(list(tidy.RUN), dropna=False).size().max()
        yield f"within each fold{where} from {count(number, 'candidate')}{drawn}: the one with"
        yield f"the best mean {facts.metric} in {inner} within the training part was trained on"
        yield f"{part} (nested cross-validation)."
        if of_model["rung"].max() > 1:
            yield "Candidates were eliminated by successive halving, with"
            of_whole = of_model.loc[~of_model["pruned"].astype(bool), "rung"]
            most = "up to " if of_whole.nunique() > 1 else ""  # rounds of a search differ in size
            yield f"{most}{of_model['rung'].max():.0f} rungs."


def _comparison(frames, facts):
    metrics = comma_separated(facts.metrics)
    yield f"{metrics[0].upper()}{metrics[1:]}: on the held-out samples, which training never sees."
    compared = []
    if "models_table" in frames and frames["models_table"]["pairs"].notna().any():
        compared += ["of each model and schedule with the best one, corrected for all their pairs"]
    if len(frames.get("comparison_table", ())):
        compared += [f"of each setup with {facts.baseline}"]
    if compared:
        yield f"The {facts.metric} was compared {'; and '.join(compared)}: in pairs of runs with"
        yield f"the same fold and seed, by {REFERENCE} with J - 1 degrees of freedom for J pairs,"
        yield "and Holm's correction for multiple comparisons. Intervals of differences are 95 %"
        yield "confidence intervals of that test, without this correction; those of scores allow"
        yield f"for shared training samples in the same way{_scale(facts.metric)}."


def _scale(metric):
    """On which scale the interval of a score is symmetric: see comparison.within()."""
    if metric.bounds == (None, None):
        return ""
    return f", on a {'logit' if None not in metric.bounds else 'logarithmic'} scale"


def _timing(rows):
    alone = rows["exclusive"].astype(bool)
    yield "Times are for training only, without start-up, evaluation and checkpoints; speeds are"
    yield "medians of the epochs after the first, and over runs."
    if alone.all():
        yield "Each run had the machine to itself."
    elif alone.any():
        yield "Some runs had the machine to themselves, the others shared it with other runs."
    else:
        yield "Runs were packed onto the cores, side by side."
    disturbed = rows["contended"].astype(bool).sum()
    if disturbed:
        yield f"In {disturbed} of {count(len(rows), 'run')}, other processes competed for cores."
    if rows["pinned"].astype(bool).all():
        yield "Each process was pinned to its own cores."
    networks = rows[rows["schedule"] != grid.NO_SCHEDULE.label]
    recipes = networks[["model", "precision", "memory_format", "threads_used"]].drop_duplicates()
    if len(recipes):
        recipes = "; ".join(map(_recipe, recipes.groupby("model", sort=False)))
        yield f"Precision and memory format: {recipes}."
    machines = rows.drop_duplicates(["machine_host", "machine_processor"])
    for _, row in machines.iterrows():
        yield (
            f"Machine: {row['machine_processor']}, {count(row['machine_cores_allowed'], 'core')}, "
            f"{row['machine_memory_bytes'] / 2**30:.0f} GiB, {row['machine_vector_instructions']}; "
            f"{row['machine_system']}."
        )
    versions = rows.drop_duplicates(["machine_python", "machine_torch", "machine_numpy"])
    for _, row in versions.iterrows():
        yield (
            f"Python {row['machine_python']}, torch {row['machine_torch']}, "
            f"numpy {row['machine_numpy']}, trained and compared by allcores {version()}."
        )


def _recipe(group):
    model, rows = group
    pairs = zip(rows["precision"], rows["memory_format"].str.replace("_", " "), strict=True)
    formats = dict.fromkeys(map(comma_separated, pairs))
    return f"{' or '.join(formats)} ({model})"


def version():
    """The version, and the commit where this is a clone: "0.1.0 (commit 1a2b3c4)"."""
    commit = _commit()
    return f"{allcores.__version__} (commit {commit})" if commit else allcores.__version__


def _commit():
    """With -dirty if files have changed since; "": this is no clone, or there is no git."""
    if not (programs.PROJECT / ".git").exists() or shutil.which("git") is None:
        return ""
    command = ["git", "-C", programs.PROJECT, "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()
