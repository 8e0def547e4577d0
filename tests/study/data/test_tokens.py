"""Sequences of tokens: texts and numbers of the user's own, of different lengths."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import DDP, ROOT, same_weights, task_of, using, vary
from test_any_data import PLAIN

from allcores_study.config import checks, registry
from allcores_study.config.run import Entry
from allcores_study.data import tokens
from allcores_study.data.tokens import Vocabulary
from allcores_study.datasets import npz, text
from allcores_study.planning import preflight, trials
from allcores_study.serving import samples
from allcores_study.serving.model import Model
from allcores_study.serving.predictor import Predictor
from allcores_study.training import models

RANDOM = np.random.default_rng(0)
WORDS = {"yes": ["good", "great", "fine"], "no": ["bad", "poor", "dull"]}
REST = ["the", "film", "was", "a", "very", ","]
CROSS_ENTROPY = Entry("CrossEntropyLoss", "CrossEntropyLoss", {})
NETWORKS = {"lstm": {"hidden": 6}, "text_cnn": {"dropout": 0.0}, "transformer": {"dropout": 0.0}}


def review(place):
    words = WORDS["yes" if place % 2 else "no"] + 2 * REST
    length = 1 + place % 9
    return " ".join([*RANDOM.choice(words, length), f"rare{place}"][: max(length, place % 7)])


FRAME = pd.DataFrame({"review": map(review, range(60)), "liked": ["no", "yes"] * 30})


def run_on(folder, frame=FRAME, model="text_cnn", **options):
    frame.to_csv(folder / "reviews.csv", index=False)
    columns = {"path": str(folder / "reviews.csv"), "text": "review", "target": "liked"}
    return vary(
        dataset=Entry("reviews", "text", columns | options),
        model=Entry(model, model, NETWORKS[model]),
        optimizer=Entry("Adam", "Adam", {"lr": 0.02}),
        loss=CROSS_ENTROPY,
        **PLAIN,
        **{"folds": 3, "fold": 0, "epochs": 2, "batch_size": 10},
    )


def network(name, vocabulary=9, longest=8):
    torch.manual_seed(0)
    run = vary(model=Entry(name, name, NETWORKS[name]))
    return models.build(run, (longest,), 2, vocabulary).eval()


def test_texts_are_cut_into_words_or_characters():
    assert tokens.split("It's GOOD, très bon!", tokens.WORDS) == [
        *("it", "'", "s", "good", ",", "très", "bon", "!")
    ]
    assert tokens.split("Ab c", tokens.CHARACTERS) == ["A", "b", " ", "c"]
    vocabulary = Vocabulary.of_texts(["b a", "", "c b"], tokens.WORDS, 9)
    assert vocabulary.words == ("a", "b", "c")
    rows = vocabulary.numbers(["b a b c", "", "d"], 3)
    assert rows.tolist() == [[3, 2, 3], [0, 0, 0], [1, 0, 0]]
    assert rows.dtype == np.int32
    assert Vocabulary.from_json(vocabulary.to_json()) == vocabulary


def test_a_network_knows_the_most_frequent_words_of_its_training_part():
    vocabulary = Vocabulary.of_texts(["a b b c c c d"], tokens.WORDS, 2)
    rows = vocabulary.numbers(["b c c", "c b a", "d d d d"], 4)
    known, renumbered = vocabulary.known_by(rows[:2])
    assert known.words == ("c", "b")
    assert known.size == 4
    assert renumbered[rows].tolist() == [[3, 2, 2, 0], [2, 3, 1, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize("name", NETWORKS)
def test_padding_changes_no_score(name):
    model = network(name)
    rows = torch.tensor([[3, 4, 5, 6, 7, 8, 2, 1], [5, 6, 0, 0, 0, 0, 0, 0], [7] + 7 * [0]])
    together = model(rows)
    for place, length in enumerate((8, 2, 1)):
        alone = model(rows[place : place + 1, :length])
        assert torch.allclose(alone[0], together[place], atol=1e-6)
    assert torch.isfinite(model(torch.zeros(2, 8, dtype=torch.int64))).all(), "empty texts"


@pytest.mark.parametrize("taken", ["lengths", "mask"])
def test_a_model_is_given_what_it_takes(tmp_path, monkeypatch, taken):
    (tmp_path / f"taking_{taken}.py").write_text(
        "from torch import nn\n\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, vocabulary, classes):\n"
        "        super().__init__()\n"
        "        self.embedding = nn.Embedding(vocabulary, classes)\n\n"
        f"    def forward(self, tokens, {taken}):\n"
        f"        self.seen = tokens, {taken}\n"
        "        return self.embedding(tokens).mean(dim=1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    run = vary(model=Entry("net", f"taking_{taken}:Net", {}))
    model = models.build(run, (5,), 2, 9)
    model(torch.tensor([[3, 0, 4, 0, 0], [2, 0, 0, 0, 0], [0, 0, 0, 0, 0]]))
    seen, given = model.seen
    assert seen.shape == (3, 3), "no more than the longest of the batch"
    lengths = [3, 1, 1]
    if taken == "lengths":
        assert given.tolist() == lengths
    else:
        assert given.sum(dim=1).tolist() == lengths
    assert [*model.state_dict()] == ["embedding.weight"]


@pytest.mark.parametrize(("model", "strategy"), [("lstm", "ddp"), ("transformer", "shared_memory")])
def test_workers_follow_serial_whatever_the_lengths_in_their_parts(
    tmp_path, laboratory, strategy, model
):
    # Adam would divide by the size of a key's bias, whose gradient is rounding alone.
    sgd = Entry("SGD", "SGD", {"lr": 0.1})
    run = vary(run_on(tmp_path, model=model), optimizer=sgd)
    _, serial = laboratory.trained(run, "serial")
    _, weights = laboratory.trained(using(Entry(strategy, strategy, {}), 2, run), strategy)
    for name, expected in serial.items():
        assert torch.allclose(weights[name], expected, atol=1e-6), name


def test_scores_are_those_of_a_plain_loop_of_torch(tmp_path, laboratory):
    run = run_on(tmp_path, model="lstm")
    metrics, weights = laboratory.trained(run)
    kept = pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")
    mine = np.setdiff1d(np.arange(len(FRAME)), kept["sample"])
    texts = [[*map(str.lower, line.replace(",", " , ").split())] for line in FRAME["review"]]
    counts = pd.Series([word for place in mine for word in texts[place]]).value_counts()
    known = sorted(counts.index, key=lambda word: (-counts[word], word))
    number_of = {word: place for place, word in enumerate(known, 2)}
    longest = max(len(texts[place]) for place in mine)
    rows = torch.zeros(len(texts), longest, dtype=torch.int64)
    for row, words in zip(rows, texts, strict=True):
        words = [number_of.get(word, 1) for word in words[:longest]]
        row[: len(words)] = torch.tensor(words)
    model = network("lstm", len(known) + 2, longest)
    assert metrics["vocabulary"]["words"] == known
    assert metrics["shape"] == [longest]
    model.load_state_dict(weights)
    scores = model(rows[kept["sample"].to_numpy()]).detach().numpy()
    assert np.stack(kept["scores"]) == pytest.approx(scores, abs=1e-5)


def test_words_that_only_held_out_texts_have_change_no_weight(tmp_path, laboratory):
    weights, frame = [], FRAME.copy()
    for name in ("clean", "planted"):
        entry = vary(run_on(tmp_path, frame), seed=0)
        entry = vary(entry, dataset=Entry(name, "text", entry.dataset.options))
        metrics, kept = laboratory.trained(entry, name)
        weights.append(kept)
        held_out = pd.read_parquet(laboratory.folder / name / "predictions.parquet")["sample"]
        frame.loc[held_out[:2], "review"] = "zebra " * 40 + "aardvark"
    assert same_weights(*weights)
    assert "zebra" not in metrics["vocabulary"]["words"]


def test_runs_of_several_folds_predict_texts_together(tmp_path, laboratory):
    run = run_on(tmp_path, model="lstm")
    for fold in (0, 1):
        laboratory.trained(vary(run, fold=fold), f"fold{fold}")
    predictors = [Predictor(laboratory.folder / f"fold{fold}") for fold in (0, 1)]
    assert predictors[0].vocabulary != predictors[1].vocabulary
    new = samples.of(tmp_path / "reviews.csv", predictors[0])
    kept = pd.read_parquet(laboratory.folder / "fold0" / "predictions.parquet")
    told = predictors[0].scores(new.inputs)[kept["sample"]]
    assert told == pytest.approx(np.stack(kept["scores"]), abs=1e-6)
    assert Model(predictors).predict_proba(FRAME).shape == (60, 2)
    (tmp_path / "other.csv").write_text("text\ngood\n")
    with pytest.raises(ValueError, match="has no texts in a column review; found text"):
        samples.of(tmp_path / "other.csv", predictors[0])


def test_numbers_of_the_users_own_stay_integers(tmp_path, laboratory):
    rows = np.zeros((40, 6), np.int64)
    for place, row in enumerate(rows):
        row[: 2 + place % 4] = 1 + (place + np.arange(2 + place % 4)) % 9
    np.savez(tmp_path / "ids.npz", inputs=rows, labels=np.arange(40) % 2)
    options = {"path": str(tmp_path / "ids.npz"), "inputs": "tokens"}
    run = vary(run_on(tmp_path), dataset=Entry("ids", "npz", options))
    metrics, weights = laboratory.trained(run)
    assert metrics["dtype"] == "int32"
    assert weights["embedding.weight"].shape[0] == 10
    wider = vary(run, dataset=Entry("wide", "npz", options | {"vocabulary": 50}))
    assert laboratory.trained(wider, "wide")[1]["embedding.weight"].shape[0] == 50
    predictor = Predictor(laboratory.folder / "run")
    np.save(tmp_path / "new.npy", rows[:3])
    assert samples.of(tmp_path / "new.npy", predictor).inputs.dtype == np.int32
    np.save(tmp_path / "new.npy", rows[:3] + 9)
    with pytest.raises(ValueError, match="integers from 0 to 9"):
        samples.of(tmp_path / "new.npy", predictor)


@pytest.mark.parametrize(
    ("arrays", "options", "said"),
    [
        ({"inputs": np.ones((4, 2))}, {}, "tokens must be inputs, .N, L. integers; found inputs"),
        ({"inputs": -np.ones((4, 2), int)}, {}, "found tokens from -1 to -1"),
        ({"inputs": np.full((4, 2), 7)}, {"vocabulary": 7}, "expected numbers from 0 to 6"),
        ({"images": np.ones((4, 2, 2), np.uint8)}, {}, "found images"),
    ],
)
def test_arrays_that_are_no_tokens_are_refused(tmp_path, arrays, options, said):
    np.savez(tmp_path / "mine.npz", labels=np.arange(4) % 2, **arrays)
    with pytest.raises(ValueError, match=said):
        npz.load(None, path=str(tmp_path / "mine.npz"), inputs="tokens", **options)


@pytest.mark.parametrize(
    ("frame", "options", "said"),
    [
        (FRAME, {"text": "liked"}, "the column liked is both text and target"),
        (FRAME, {"text": "revue"}, "has no column .revue.; found .review., .liked."),
        (FRAME.assign(review=[" "] * 60), {}, "the column review has no words"),
    ],
)
def test_columns_that_are_no_texts_are_refused(tmp_path, frame, options, said):
    frame.to_csv(tmp_path / "mine.csv", index=False)
    given = {"path": str(tmp_path / "mine.csv"), "text": "review", "target": "liked"} | options
    with pytest.raises(ValueError, match=said):
        text.load(None, **given)


def test_what_is_cut_off_is_told(tmp_path):
    FRAME.to_csv(tmp_path / "mine.csv", index=False)
    options = {"path": str(tmp_path / "mine.csv"), "text": "review", "target": "liked"}
    made = text.load(None, **options, longest=3)
    assert made.shape == (60, 3)
    assert "texts have more than 3 words, and are cut off" in made.notes[0]


@pytest.mark.parametrize("model", ["lstm", "mlp"])
def test_a_model_is_tried_out_on_real_texts(tmp_path, model):
    run = run_on(tmp_path, vocabulary=5)
    run = vary(run, model=Entry(model, model, {}))
    _, request = preflight.trial(run)
    assert request["vocabulary"] == 7
    facts = registry.facts(run.dataset)
    said = trials.answer(run, facts.shape, task_of(facts), [DDP], facts.most_tokens)
    if model == "lstm":
        assert said["problem"] is None
    else:
        assert "use a model that embeds them, as lstm" in said["problem"]


def test_a_network_for_tokens_says_so_of_other_samples():
    entry = {"batch_size": 8, "epochs": 1, "optimizer": {"name": "sgd", "lr": 0.1}}
    config = {
        "models": {"lstm": entry},
        "studies": {"a": {"datasets": ["wine"], "folds": 2, "models": ["lstm"]}},
    }
    assert not checks.findings(config)
    run = vary(model=Entry("lstm", "lstm", {}))
    with pytest.raises(ValueError, match="lstm takes vocabulary, which samples"):
        models.build(run, (13,), 3)


def test_an_estimator_takes_no_tokens(tmp_path):
    run = run_on(tmp_path)
    estimator = "sklearn.ensemble:RandomForestClassifier"
    run = vary(run, model=Entry("forest", estimator, {}), optimizer=None, batch_size=None)
    facts = registry.facts(run.dataset)
    with pytest.raises(trials.UnfitPartError, match="takes no sequences of tokens"):
        trials.tried_out(run, facts.shape, task_of(facts), (), facts.most_tokens)


def test_nothing_that_a_text_can_be_is_taken_for_something_else(tmp_path, laboratory):
    written = ["NA", "", "007", "True", 'with, a comma, and "quotes"', "null"] * 5
    pd.DataFrame({"review": written, "liked": [0, 1, 1] * 10}).to_csv(tmp_path / "mine.csv")
    options = {"path": str(tmp_path / "mine.csv"), "text": "review", "target": "liked"}
    made = text.load(None, **options, tokens="characters")
    (rows,) = made.chunks
    assert texts_of(rows, made.vocabulary) == written
    pd.DataFrame({"review": ["1", "22"]}).to_csv(tmp_path / "digits.csv", index=False)
    laboratory.trained(run_on(tmp_path))
    predictor = Predictor(laboratory.folder / "run")
    assert samples.of(tmp_path / "digits.csv", predictor).inputs.tolist() == ["1", "22"]
    np.save(tmp_path / "ids.npy", np.ones((3, 4), int))
    with pytest.raises(ValueError, match="the run was trained on texts"):
        samples.of(tmp_path / "ids.npy", predictor)
    (tmp_path / "mine.csv").write_text("review,liked\ngood, film,0\nbad, film,1\n")
    with pytest.raises(ValueError, match="texts with commas need quotes"):
        text.load(None, **options)


def test_marks_of_any_script_are_parts_of_words():
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert tokens.split(decomposed, tokens.WORDS) == [composed]
    assert tokens.split("\u0939\u093f\u0928\u094d\u0926\u0940 !", tokens.WORDS) == [
        "\u0939\u093f\u0928\u094d\u0926\u0940",
        "!",
    ]


def test_spaces_at_the_ends_are_characters():
    vocabulary = Vocabulary.of_texts([" a ", "b"], tokens.CHARACTERS, 9)
    rows = vocabulary.numbers([" a ", "b", ""], 4)
    assert texts_of(rows, vocabulary) == [" a ", "b", ""]


def texts_of(rows, vocabulary):
    """The texts of characters that have these numbers."""
    characters = ["", "", *vocabulary.words]
    return ["".join(characters[number] for number in row) for row in rows]


def test_held_out_tokens_beyond_the_training_samples_need_a_vocabulary(tmp_path):
    arrays = {"inputs": [[1, 2], [3, 0]], "labels": [0, 1], "test_labels": [0, 1]}
    np.savez(tmp_path / "ids.npz", **arrays, test_inputs=[[9, 0], [1, 1]])
    options = {"path": str(tmp_path / "ids.npz"), "inputs": "tokens"}
    with pytest.raises(ValueError, match="found tokens from 0 to 9; expected numbers from 0 to 3"):
        npz.load(None, **options)
    assert npz.load(None, **options, vocabulary=10).vocabulary.size == 10


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"tokens": "chars"}, "known: words, characters (did you mean characters?)"),
        ({"longest": 0}, "expected a whole number from 1"),
        ({"vocabulary": 1.5}, "expected a whole number from 1"),
        ({"task": "regresion"}, "did you mean regression?"),
    ],
)
def test_values_of_options_are_checked(tmp_path, option, said):
    FRAME.to_csv(tmp_path / "mine.csv", index=False)
    entry = {"name": "text", "path": str(tmp_path / "mine.csv"), "text": "review"}
    entry |= {"target": "liked"} | option
    model = {"batch_size": 8, "epochs": 1, "optimizer": {"name": "sgd", "lr": 0.1}}
    found = checks.findings(
        {
            "datasets": {"mine": entry},
            "models": {"lstm": model},
            "studies": {"a": {"datasets": ["mine"], "folds": 2, "models": ["lstm"]}},
        }
    )
    assert len(found) == 1
    assert said in found[0]


def test_lazy_modules_get_integers_and_lengths(tmp_path, monkeypatch, laboratory):
    (tmp_path / "lazy_texts.py").write_text(
        "from torch import nn\n\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, vocabulary, classes):\n"
        "        super().__init__()\n"
        "        self.size, self.head = vocabulary, nn.LazyLinear(classes)\n\n"
        "    def forward(self, tokens, lengths):\n"
        "        counts = nn.functional.one_hot(tokens, self.size).float().sum(dim=1)\n"
        "        return self.head(counts / lengths[:, None])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    run = vary(run_on(tmp_path), model=Entry("lazy", "lazy_texts:Net", {}))
    laboratory.trained(run)


@pytest.mark.parametrize("beyond", [2**32 + 1, 2**33, 2**31])
def test_tokens_that_int32_cannot_hold_are_refused_before_they_are_cast(tmp_path, beyond):
    numbers = np.ones((4, 2), np.int64)
    numbers[2, 1] = beyond
    np.savez(tmp_path / "mine.npz", inputs=numbers, labels=[0, 1, 0, 1])
    for vocabulary in (None, 100):
        with pytest.raises(ValueError, match=f"found tokens from 1 to {beyond}"):
            npz.load(None, path=tmp_path / "mine.npz", inputs="tokens", vocabulary=vocabulary)


def test_texts_that_are_one_word_each_are_noted():
    file = str(ROOT / "tests" / "inputs" / "zh2.csv")
    notes = text.load(None, path=file, text="v2", target="v1").notes
    assert any("`tokens: characters`" in note for note in notes)
    assert not text.load(None, path=file, text="v2", target="v1", tokens="characters").notes
