"""What identifies a run: all that decides its weights, for reruns, resuming and collecting alike.

* `settings`: of the Run;
* `code`: what of it the run can reach;
* `torch`: its version;
* `pixels`, `labels`, `folds`: the data, by their SHA-256; folds is None for a test set.

Two things beside it are recorded, too. What is scored (conditions.Conditions.curves) trains again
only where more is asked for than there is. How it was measured (conditions.Conditions.exclusive,
pinned, the machine, the version of torch) changes no weight: a run that must be timed alone is made
again where it was not, and only timings under the same conditions are compared.
"""

import functools
import hashlib
import importlib.metadata
import json

from allcores.study import fingerprint


def before_data(run):
    """The part of a Run's identity that is known before its data are: a dict of texts."""
    return {
        "settings": run.to_json(),
        "code": fingerprint.of_run(run),
        "torch": version_of_torch(),
    }


def whole(run, info, fold_of):
    """The identity of a Run on a dataset.

    Args:
        info: what dataset.json says.
        fold_of: the fold of each training sample, (N,) int64; None: its own test set is held out.
    """
    pixels = {"images": info["sha256"]["images.npy"], "train": info["train"]}
    labels = {"labels": info["sha256"]["labels.npy"], "classes": info["classes"]}
    folds = None if fold_of is None else hashlib.sha256(fold_of.tobytes()).hexdigest()
    return before_data(run) | {"pixels": _text(pixels), "labels": _text(labels), "folds": folds}


def differences(found, wanted):
    """Where two identities differ: ["epochs", "the code", ...]; settings by their keys."""
    parts = [f"the {key}" for key in wanted if key != "settings" and found.get(key) != wanted[key]]
    theirs, ours = json.loads(found["settings"]), json.loads(wanted["settings"])
    return [key for key in ours if theirs.get(key) != ours[key]] + parts


def _text(value):
    return json.dumps(value, sort_keys=True)


@functools.cache
def version_of_torch():
    """Found without importing torch; +cpu and the like are builds of the same."""
    return importlib.metadata.version("torch").partition("+")[0]
