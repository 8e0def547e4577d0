"""Whole numbers that stand for words: left as they are, and tried out with real samples."""

import sys

import numpy as np
import pytest
from conftest import vary
from test_any_data import PLAIN

from allcores.data import storage
from allcores.data.scaling import Scaling
from allcores.datasets import npz
from allcores.planning import measuring, preflight
from allcores.planning.workload import Sizes
from allcores.serving.predictor import Predictor
from allcores.study import registry
from allcores.study.run import AUTO, Choice
from allcores.training import recipes, sanity

TOKENS = """
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.words = nn.EmbeddingBag(50, classes)

    def forward(self, x):
        return self.words(x.long())
"""


def test_whole_numbers_can_be_left_as_they_are(tmp_path, laboratory, monkeypatch):
    inputs = np.random.default_rng(0).integers(0, 50, (40, 7))
    np.savez(tmp_path / "mine.npz", inputs=inputs, labels=np.arange(40) % 2)
    path = str(tmp_path / "mine.npz")
    (note,) = npz.load(None, path=path).notes
    assert "whole numbers (int64) and are scaled as measurements are" in note
    made = npz.load(None, path=path, scale=False)
    assert made.notes == []
    choice = Choice("mine", "npz", {"path": path, "scale": False})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "tokens.py").write_text(TOKENS)
    run = vary(dataset=choice, model=Choice("tokens", "tokens:Net", {}), folds=2, fold=0, **PLAIN)
    metadata = registry.metadata(choice)
    ends = [inputs[row.argmin() // 7] for row in (inputs, -inputs)]
    assert metadata.examples == np.array(ends).tolist()
    # Real samples: random ones are no words.
    said = sanity.answer(run, metadata.shape, 2, examples=metadata.examples)
    assert said["problem"] is None
    assert sanity.answer(run, metadata.shape, 2)["problem"] is not None
    laboratory.conduct(run)
    scaling = Scaling.of(storage.open_dataset(laboratory.data(choice)), np.arange(20))
    assert (scaling.mean.tolist(), scaling.std.tolist()) == ([0] * 7, [1] * 7)
    auto = vary(run, threads_per_worker=1, precision="fp32", memory_format=AUTO)
    recipes.calibrate(auto, laboratory.data(choice), 1, tmp_path / "recipe.json")
    sizes = Sizes.of(auto, laboratory.data(choice))
    assert sizes.examples == metadata.examples == Sizes.of(auto, tmp_path).examples
    measuring._write_samples(tmp_path / "written", sizes, 5, 3)
    assert storage.open_dataset(tmp_path / "written").inputs[4].tolist() == ends[0].tolist()
    predictor = Predictor(laboratory.folder / "run")
    with pytest.raises(ValueError, match="its model does not take these samples"):
        predictor.scores(np.full((1, 7), 79, np.float32))


def test_other_words_are_another_trial(tmp_path):
    """Also in a file of the same shape: an embedding may not take them."""
    keys = set()
    for words in (50, 60):
        inputs = np.zeros((40, 7), int)
        inputs[30] = words
        np.savez(tmp_path / f"{words}.npz", inputs=inputs, labels=np.arange(40) % 2)
        choice = Choice("mine", "npz", {"path": str(tmp_path / f"{words}.npz"), "scale": False})
        key, trial = preflight.trial(vary(dataset=choice, folds=2, fold=0, **PLAIN))
        assert trial["examples"] == [[0] * 7, [words] * 7]
        keys.add(key)
    assert len(keys) == 2
