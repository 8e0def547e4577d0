"""The final model of a study, which was trained on all samples."""

from __future__ import annotations

from pathlib import Path

from allcores.files import read_json
from allcores_study.records.results_folder import FINAL_MODELS
from allcores_study.serving.predictor import Predictor


def read(folder: str | Path, model: str | None = None) -> Predictor:
    """Return the final model that scored best in cross-validation.

    Args:
        folder: of the results of a config, or of a study.
        model: label of a model; None: of any.

    Raises:
        ValueError: there is no such model, or models of several studies or datasets.
    """
    lists = sorted(Path(folder).rglob(FINAL_MODELS))
    if not lists:
        raise ValueError(f"{folder}: has no final models; add `final: true` to the study")
    found = [(file.parent, entry) for file in lists for entry in read_json(file)["models"]]
    fitting = [(place, entry) for place, entry in found if model in (None, entry["model"])]
    if not fitting:
        known = dict.fromkeys(entry["model"] for _, entry in found)
        raise ValueError(f"{folder}: has no final {model!r}; found {', '.join(known)}")
    if len({(place, entry["dataset"]) for place, entry in fitting}) > 1:
        places = dict.fromkeys(str(place / entry["dataset"]) for place, entry in fitting)
        raise ValueError(f"{folder}: has several final models; give one of {', '.join(places)}")
    place, best = fitting[0]
    return Predictor(place / best["folder"])
