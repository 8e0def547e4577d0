"""Estimators that a config cannot describe, such as pipelines and searches, as pickled files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from allcores.files import sha256_of
from allcores_study import programs

IS_ESTIMATOR = True
FUNCTION = f"{__name__}:estimator"


def estimator(file: str, sha256: str, n_jobs: int = 1, random_state: int | None = None) -> Any:
    """Return the estimator in a file, unfitted, with these values wherever it has such parameters.

    Of parts inside each other, only the outermost gets `n_jobs`.

    Raises:
        ValueError: the file is not the one that was written.
    """
    content = Path(file).read_bytes()
    if sha256_of(content) != sha256:
        raise ValueError(f"{file} was changed since it was written from Python")
    found = pickle.loads(content)
    parameters = found.get_params()
    # Their packages' versions belong to the run, as those of packages that a user's module imports.
    modules = [type(part).__module__ for part in (found, *parameters.values())]
    programs.brought.update(module.partition(".")[0] for module in modules)
    random = {name: random_state for name in parameters if name.endswith("random_state")}
    parts = [name.split("__")[:-1] for name in parameters if name.split("__")[-1] == "n_jobs"]
    outermost = [one for one in parts if not any(one[: len(p)] == p != one for p in parts)]
    parallel = {"__".join([*part, "n_jobs"]): n_jobs for part in outermost}
    return found.set_params(**random, **parallel)


def content_of(place: str, given: Any) -> bytes:
    """Return an estimator, unfitted, as the content of a file.

    Raises:
        ValueError: other processes could not load it.
    """
    from sklearn.base import clone

    state = np.random.get_state()
    try:
        # Unfitted, and with one state of what parts such as scipy's distributions share: the same
        # estimator is the same file.
        np.random.seed(0)
        content = pickle.dumps(clone(given))
    except Exception as error:  # whatever its parts raise
        raise ValueError(f"{place}: cannot be pickled for other processes: {error}") from None
    finally:
        np.random.set_state(state)
    if b"__main__" in content:
        raise ValueError(
            f"{place}: has a part that is defined in this script or notebook, which other "
            "processes cannot import; move it to a file of its own and import it from there"
        )
    return content
