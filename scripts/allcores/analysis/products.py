"""What a study ends with: the names of its tables and figures. No torch."""

from allcores.study import grid, registry

# Of every study; accuracy only where there is something to learn.
SPEED = ["speed_table", "phases_figure", "speedup_figure", "loss_figure", "utilisation_figure"]
ACCURACY = [
    "accuracy_table",
    "comparison_table",
    "class_table",
    "accuracy_figure",
    "class_figure",
    "confusion_figure",
]
# Key of a study -> what it ends with besides, if it has that key.
ON_REQUEST = {
    "curves": ["curves_figure"],
    "target_accuracy": ["target_table", "target_figure"],
    "references": ["elapsed_table", "elapsed_figure"],
    "against": ["packing_table", "packing_figure"],
}
# What the verdict has sentences for; of tables that only list numbers it says nothing.
SPOKEN_OF = [
    *("packing_table", "speed_table", "elapsed_table"),
    *("target_table", "size_table", "comparison_table"),
]
SIZES = ["size_table", "size_figure"]
STALENESS = ["staleness_figure"]


def of_study(config, name):
    """The names of the tables and figures of a study."""
    asked = config["studies"][name]
    found = SPEED + (ACCURACY if _is_learnable(config, asked) else [])
    for key, names in ON_REQUEST.items():
        found = found + (names if key in asked and asked[key] is not False else [])
    if len(asked.get("train_sizes", [])) > 1:
        found = found + SIZES
    return found + (STALENESS if is_asynchronous(config, name) else [])


def spoken_of(config, name):
    """The tables that the verdict of a study is made from."""
    found = of_study(config, name)
    return ["runs", "missing", *(table for table in SPOKEN_OF if table in found)] + (
        ["staleness"] if is_asynchronous(config, name) else []
    )


def files(config, name):
    """The files that hold them, and the verdict."""
    yield "verdict.html"
    for product in of_study(config, name):
        suffixes = ("html",) if product.endswith("_table") else ("png", "svg")
        yield from (f"{product}.{suffix}" for suffix in suffixes)


def is_asynchronous(config, name):
    """Whether workers of one of its strategies do not wait for each other."""
    labels = (grid.STUDY_DEFAULTS | config["studies"][name])["strategies"]
    chosen = [grid.choice(config, "strategies", label) for label in labels]
    return any(_constant(registry.strategies(), c, "asynchronous", False) for c in chosen)


def _is_learnable(config, asked):
    """Whether the labels of its datasets have to do with the images."""
    chosen = [grid.choice(config, "datasets", label) for label in asked["datasets"]]
    return any(_constant(registry.datasets(), c, "LEARNABLE", True) for c in chosen)


def _constant(known, choice, constant, default):
    return known[choice.name].constants.get(constant, default)
