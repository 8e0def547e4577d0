"""A config's mistakes: all of them, a line each, with place and remedy."""

import copy
import math
import re

import jsonschema
import pytest
import yaml
from conftest import ROOT

from allcores_study import yaml_files
from allcores_study.config import checks, violations

GOOD = yaml.safe_load("""
models:
  lenet: {batch_size: 8, epochs: 1, optimizer: {name: adam, lr: 0.1}}
studies:
  first: {datasets: [digits], folds: 3, models: [lenet], strategies: [serial, ddp], workers: [1, 2]}
""")


def put(config, place, value):
    """Put a value where a finding would say that it stands: at "studies.first.workers.0"."""
    *parents, last = (int(key) if key.isdigit() else key for key in place.split("."))
    for key in parents:
        config = config.setdefault(key, {}) if isinstance(config, dict) else config[key]
    config[last] = value


# A place, a mistake there, and what is said of it at that place.
MISTAKES = [
    ("studys", {}, "unknown key; known: .*did you mean studies"),
    ("timeout", "1e400", "found '1e400'; expected a number above 0[^:]*$"),
    ("models.lenet.patience", 3, "needs `validation`, whose"),
    ("models.lenet.ema", 1, "found 1"),
    ("models.lenet.widht", 2, "unknown key; .*did you mean width"),
    ("models.lenet.width", "1.0", "found the text '1.0'; .*: write 1$"),
    ("models.lenet.width", "0.5x", "found the text '0.5x'; expected a number"),
    ("models.lenet", {False: 1}, r"found the key False \(as YAML reads no, off, yes and on\)"),
    ("models.lenet", {}, "lacks batch_size, epochs, optimizer"),
    (
        "models.lenet",
        {"epoch": 2, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 1}},
        r"lacks epochs \(did you mean it by epoch\?\)",
    ),
    ("models.lenet.import", "no.such:Net", "no.such:Net cannot be imported"),
    ("models.lenet.import", ".:Net", "is not an import path"),
    ("models.lenet.optimizer.name", "adm", "unknown optimizer 'adm'.*mean Adam"),
    ("models.lenet.optimizer.lr", "1e-3", "found '1e-3'.*write 0.001"),
    ("models.lenet.optimizer.lr", -0.1, "found -0.1; expected a number above 0$"),
    ("models.lenet.optimizer.lr", math.nan, "found nan; expected a finite number"),
    ("models.lenet.optimizer.eps", "1e-8", "the text '1e-8'.*write 1e-08"),
    ("models.lenet.optimizer.beta", 1, "unknown key"),
    ("models.lenet.optimizer.foreach", "maybe", "found 'maybe'; known: None, True, False"),
    (
        "models.lenet.optimizer",
        {"name": "adam", "lr": 1, "betas": [0.9]},
        r"\[0.9\]; expected 2 values, like \[",
    ),
    (
        "models.lenet.optimizer",
        {"name": "adam", "lr": 1, "betas": [0.9, 0.99, 0.999]},
        r"0.999\]; expected 2 values, like \[",
    ),
    ("models.lenet.epochs", 10**18, "found a number of 19 digits; expected one below 1e"),
    ("models.lenet.learning_rate", 0.1, "for the optimizer, write `optimizer: {lr: ...}`"),
    ("models.lenet.options", {"epochs": 3}, r"unknown key; known: width[^:]*$"),
    ("models.lenet.loss.name", "entropy", "unknown loss 'entropy'"),
    ("models.lenet.loss", {"name": "nll", "ignore_index": 1}, "unknown key"),
    ("models.lenet.augmentation.flop", True, "unknown key.*mean flip"),
    ("models.lenet.memory_format", "channel_last", "'channel_last'.*mean channels_last"),
    ("models.lenet.epochs", 0, "found 0"),
    (
        "models.lenet.width",
        math.inf,
        "found inf; expected a finite number",
    ),
    ("models.lenet.epochs", 10**400, "found a number of 401 digits; expected one below"),
    ("models.lenet", "lenet", "found 'lenet'; expected keys and values$"),
    (
        "models.lenet",
        {"epochs": 2, "batch_size": 8, "optimizer": {"name": "sgd", "learning_rate": 1}},
        r"lacks lr \(did you mean it by learning_rate\?\)",
    ),
    ("datasets.mine", "mine.csv", "found 'mine.csv'; expected keys and values, or nothing"),
    ("studies.first.seeds", [2**32], "found 4294967296; expected .* up to 4294967295"),
    # Lists of values, to choose from.
    ("models.lenet.batch_size", [], r"found \[\]; expected a value, or a list"),
    ("models.lenet.batch_size", [16, 16], r"found \[16, 16\]; nothing may be listed twice"),
    ("models.lenet.batch_size", [16, 0], "found 0; expected a whole number from"),
    ("models.lenet.optimizer.name", ["adam", "sgd"], "a sweep cannot list names"),
    ("models.lenet.optimizer.lr", [0.1, "x"], "found 'x'; expected a number"),
    ("studies.first.select", 1, "found 1; expected a whole number"),
    (
        "studies.first.select",
        200,
        "leaves 116 samples of the smallest class to train on; expected at most 116",
    ),
    ("studies.first.select", 2, "nothing to choose from.* has a list or a range"),
    ("studies.first.fold", 3, "unknown key.*did you mean folds"),
    ("studies.first.folds", 1, "found 1; expected a whole number from 2, or 'test'"),
    ("studies.first.folds", 175, "found 175; the smallest class of 'digits', 8, has 174 samples"),
    ("studies.first.folds", "test", "'digits' has no test set of its own"),
    ("studies.first.workers.0", 0, "found 0; expected a whole number"),
    ("studies.first.workers", [], "found .*; expected a list"),
    ("studies.first.seeds", [1, 1], "nothing may be listed twice"),
    ("studies.first.seeds", [2**32], f"found {2**32}; expected a whole number"),
    ("studies.first.train_sizes", [1200], "leaves 1198 .*; expected at most 1198, or all"),
    ("studies.first.threads_per_worker", [0], "found 0"),
    ("studies.first.baseline", "sreial", "found 'sreial'; .*did you mean serial"),
    ("studies.first.oversubscribe", True, "needs `exclusive: true`"),
    ("studies.first.target_accuracy", 0.9, "needs `curves: true`"),
    ("studies.first.target_accuracy", 90, "found 90; expected a number above 0 up to 1"),
    ("studies.first.against", "secnd", "found 'secnd'; known: none"),
    ("studies.first.references", [{"model": "lenet"}], "lacks label"),
    ("studies.first.models.0", "lent", "unknown model 'lent'; .*did you mean lenet"),
    ("studies.first.models.0", "mlp", "unknown model 'mlp'; .*give it an entry in `models`"),
    ("studies.first.datasets.0", "digit", "unknown dataset 'digit'.*did you mean digits"),
    ("studies.first.datasets.0", "table", "lacks path, target"),
    ("studies.first.schedules", ["cos"], "unknown schedule 'cos'; known: constant, cosine"),
    ("studies.first.strategies.0", "dpp", "unknown strategy 'dpp'; .*did you mean ddp"),
    ("strategies.x", {"name": "dp"}, "unknown strategy 'dp'"),
    ("strategies.ddp.bucket", 1, "unknown key; .*bucket_mb"),
    ("strategies.ddp.hook", "fp61", "found 'fp61'.*mean fp16"),
    ("datasets.photos", {"name": "npz"}, "lacks path"),
    ("datasets", {"a b": {"name": "digits"}}, "found 'a b'; a label may have only letters"),
]


@pytest.mark.parametrize(("place", "value", "said"), MISTAKES)
def test_each_mistake_is_one_line_that_says_where_and_what_is_allowed(place, value, said):
    config = copy.deepcopy(GOOD)
    put(config, place, value)
    findings = checks.findings(config)
    assert any(re.search(rf"^{place}(\.\w+)*: .*{said}", line) for line in findings), findings
    assert all("\n" not in line for line in findings)


def test_of_runs_that_need_too_many_cores_the_widest_is_told():
    """Texts in their order, of which three are told, would hide it."""
    config = copy.deepcopy(GOOD)
    put(config, "studies.first.workers", [2, 4, 8])
    found = [line for line in checks.findings(config, cores=1) if "needs" in line]
    assert len(found) == 1 and "needs 8 cores" in found[0] and "--cores 8" in found[0]


# What was removed -> what is said, with its place.
REMOVED = {
    "precision: auto": "^precision: `auto` was removed; write fp32 or bf16",
    "models: {lenet: {search: {sampler: tpe}}}": "^models.lenet.search: .*`sample: 60` draws",
    "models: {lenet: {memory_format: auto}}": "^models.lenet.memory_format: .*contiguous or",
    "studies: {first: {strategies: [auto]}}": "^studies.first.strategies: `auto` was removed",
    "studies: {first: {threads_per_worker: [auto]}}": "^studies.first.threads_per_worker: `auto`",
}


@pytest.mark.parametrize("change", REMOVED)
def test_what_was_removed_says_what_to_write_instead(change):
    config = copy.deepcopy(GOOD)
    (found,) = checks.findings(merged(config, yaml.safe_load(change)))
    assert re.search(REMOVED[change], found), found


# What changes GOOD -> what is said, with its place.
CONFLICTS = {
    "models:": "the config: lacks models",
    "models: {lenet: {name: lennet}}": "models.lenet: unknown model 'lennet'; .*did you mean lenet",
    "models: {lenet: {sample: 2}}": "models.lenet.sample: there is no list or range in this entry",
    "models: {lenet: {epochs: [1, 2], sample: 3}}": "lenet.sample: found 3; expected a number",
    "models: {lenet: {epochs: [1, 2], sample: {cuont: 2}}}": "sample: found .*; expected a number",
    "models: {lenet: {name: mlp, import: 'a.b:Net'}}": "models.lenet.name: conflicts with `import`",
    "strategies: {ps: {name: parameter_server, servers: 0}}": "ps.servers: found 0; expected",
    "studies: {first: {workers: [9]}}": "models.0: the batch of 8 of 'lenet' cannot be",
    "studies: {first: {cores: [2]}}": "studies.first.workers: conflicts with `cores`",
    "studies: {first: {select: 2, train_sizes: [99]}}": (
        "select: conflicts with `train_sizes`; remove one"
    ),
    "studies: {first: {threads_per_worker: [2]}}": (
        "studies.first.workers: ddp with 2 workers x 2 threads needs 4 cores.*; "
        "this invocation has 3; give it --cores 4"
    ),
    "studies: {first: {references: [{model: lent, label: x, score: 1}]}}": (
        "references.0.model: found 'lent'; .*did you mean lenet"
    ),
    "studies: {first: {references: [{model: lenet, label: x, score: 95}]}}": (
        "references.0.score: found 95; expected a value of accuracy, from 0 up to 1"
    ),
    "studies: {first: {strategies: [parameter_server], cores: [1, 2], workers: null}}": (
        "first.cores: parameter_server has 1 server, which leaves no core"
    ),
    "studies: {first: {datasets: [p]}}\ndatasets: {p: {name: npz, path: no.npz}}": (
        "datasets.p.path: no.npz does not exist"
    ),
    "studies: {first: {strategies: [serial, ddp, ring]}}\n"
    "models: {lenet: {optimizer: {name: adafactor}}}": (
        r"strategies\.2: ring updates each weight separately, which Adafactor of 'lenet'"
    ),
    # The final runs have one path, whatever the folds.
    "models: {lenet: {epochs: [1, 2]}}\n"
    "studies: {first: {select: 2, final: true}, second: {folds: 2, select: 3, final: true}}": (
        "studies.second.select: the study first chooses between candidates of the same runs by"
    ),
    "studies: {first: {against: second}, second: {}}": (
        "studies.first.against: 'second' needs `exclusive: true`"
    ),
    "studies: {first: {against: second}, second: {threads_per_worker: [1, 2]}}": (
        "studies.first.against: 'second' has 'serial' with several workers"
    ),
    "studies: {first: {against: second}, second: {exclusive: true}}": (
        "studies.first.against: 'first' has 'ddp' with several workers"
    ),
}


def merged(config, change):
    """The config with a change; studies that are new are like the first, null removes a key."""
    for key, value in change.items():
        if value is None:
            del config[key]
        elif isinstance(value, dict):
            like_first = copy.deepcopy(GOOD["studies"]["first"]) if key == "second" else {}
            merged(config.setdefault(key, like_first), value)
        else:
            config[key] = value
    return config


@pytest.mark.parametrize(("change", "line"), CONFLICTS.items(), ids=list(CONFLICTS))
def test_what_does_not_go_together_is_one_line_that_says_where(change, line):
    findings = checks.findings(merged(copy.deepcopy(GOOD), yaml.safe_load(change)), cores=3)
    assert any(re.search(line, finding) for finding in findings), findings


@pytest.mark.parametrize(
    "change",
    [
        "studies: {first: {threads_per_worker: [2], exclusive: true, oversubscribe: true}}",
        "models: {lenet: {optimizer: {lr: [0.1, 0.2]}}}\nstudies: {first: {select: 2}}",
        # Other choices: of another model beside one that both train; of other runs.
        "models: {lenet: {epochs: [1, 2]}, mlp: &mlp {batch_size: 8, epochs: 1, optimizer: {name: "
        "sgd, lr: 1}}, two: {<<: *mlp, name: mlp, epochs: [1, 2]}}\n"
        "studies: {first: {models: [lenet, mlp], select: 2}, "
        "second: {models: [two, mlp], select: 3}}",
        "models: {lenet: {epochs: [1, 2]}}\nstudies: {first: {workers: [1], select: 2}, "
        "second: {workers: [1], strategies: [serial], threads_per_worker: [2], select: 3}}",
        # Keys of an estimator are its own, and it is one process.
        "models: {a: {import: 'sklearn.neural_network:MLPClassifier', batch_size: auto}, "
        "b: {import: 'sklearn.neural_network:MLPClassifier', batch_size: 1}, "
        "c: {import: 'sklearn.gaussian_process:GaussianProcessClassifier', "
        "optimizer: fmin_l_bfgs_b}}\n"
        "studies: {first: {models: [lenet, a, b, c], strategies: [serial, ring]}}",
    ],
)
def test_what_goes_together_has_no_finding(change):
    assert checks.findings(merged(copy.deepcopy(GOOD), yaml.safe_load(change)), cores=3) == []


OURS = [*(ROOT / "config").rglob("*.yaml"), *(ROOT / "examples").rglob("*.yaml")]


@pytest.mark.parametrize("file", sorted(OURS), ids=lambda f: f.stem)
def test_the_configs_that_come_along_have_nothing_to_be_said_against(file, monkeypatch):
    """Neither by a call nor by an editor."""
    monkeypatch.chdir(file.parent)
    monkeypatch.syspath_prepend(file.parent)
    config = yaml.safe_load(file.read_text())
    findings = checks.findings(config, [file], cores=48)
    # Data of some examples are made by their READMEs.
    assert not [line for line in findings if "does not exist" not in line]
    assert not list(jsonschema.Draft202012Validator(violations.json_schema()).iter_errors(config))


def test_all_findings_of_a_stage_come_at_once_with_file_and_line(tmp_path):
    text = """models:
  lenet:
    batch_size: 8
    epochs: 0
    optimizer: {name: adm, lr: 0.1}
studies:
  first:
    datasets: [digits]
    folds: 1
    models:
      - lenet
      - lent
"""
    file = tmp_path / "mine.yaml"

    def found(text):
        file.write_text(text)
        findings = checks.findings(yaml.safe_load(text), [file], cores=2)
        return [finding.split(": ")[0].removeprefix(f"{file}:") for finding in findings]

    assert found(text) == ["4", "9"], "of values"
    text = text.replace("epochs: 0", "epochs: 1").replace("folds: 1", "folds: 2000")
    assert found(text) == ["5", "12"], "of names"
    text = (
        text.replace("adm", "adam")
        .replace("lent\n", "mlp\n")
        .replace(
            "studies", "  mlp: {batch_size: 8, epochs: 1, optimizer: {name: sgd, lr: 1}}\nstudies"
        )
    )
    assert found(f"{text}    threads_per_worker: [3]\n") == ["8", "10", "10"], "of sums"
    file.write_text(text.replace("batch_size: 8\n", "batch_size: [8, 0]\n"))
    (of_candidate, *_) = checks.findings(yaml.safe_load(file.read_text()), [file])
    assert of_candidate.startswith(f"{file}:3: models.lenet.batch_size: found 0")


def test_a_key_that_is_no_text_is_one_finding():
    config = copy.deepcopy(GOOD) | {"models": {1: GOOD["models"]["lenet"]}}
    (line,) = checks.findings(config)
    assert line.startswith("models: found the key 1")


def test_what_the_command_line_gives_is_typed():
    given = {"epochs": "3", "lr": "0.1", "flip": "true", "name": "adam", "workers": ["1", "2"]}
    typed = {"epochs": 3, "lr": 0.1, "flip": True, "name": "adam", "workers": [1, 2]}
    assert yaml_files.typed(given) == typed


SWEPT = """
models:
  lenet: {batch_size: 8, epochs: 1, optimizer: {name: sgd, lr: [0.05, 0.1]}}
"""


def test_of_many_values_drawn_from_a_range_three_are_told_and_the_others_counted():
    config = copy.deepcopy(GOOD)
    put(config, "models.lenet.optimizer.lr", {"range": [-2.0, -0.1]})
    config["models"]["lenet"]["sample"] = 20
    config["studies"]["second"] = config["studies"]["first"] | {"folds": 1}
    config["studies"]["third"] = config["studies"]["first"] | {"folds": 1}
    findings = checks.findings(config)
    told = [line.partition(":")[0] for line in findings]
    assert told.count("models.lenet.optimizer.lr") == 4, findings
    (last,) = [line for line in findings if "more like this" in line]
    assert last == "models.lenet.optimizer.lr: ... and 17 more like this"
    assert told.count("studies.second.folds") == told.count("studies.third.folds") == 1


def test_without_a_test_set_no_size_of_training_set_is_told():
    config = copy.deepcopy(GOOD)
    config["studies"]["first"] |= {"folds": "test", "train_sizes": [1200]}
    (line,) = checks.findings(config)
    assert "has no test set of its own" in line


@pytest.mark.parametrize(
    ("studies", "finding"),
    [
        ("studies: {s: {datasets: [digits], folds: 2, models: lenet}}", "studies.s.models: found"),
        ("studies:", "studies: found None; expected keys and values"),
        ("studies: []", "studies: found []"),
        ("studies: {s: {datasets: [digits], folds: 2, models: }}", "studies.s.models: found None"),
    ],
)
def test_a_section_of_another_kind_is_one_finding_and_blames_no_sweep(studies, finding):
    (line,) = checks.findings(yaml.safe_load(f"{SWEPT}{studies}"))
    assert line.startswith(finding)


STAGES = {
    ("datasets: {made: {name: []}}", "recipy: fixed", "no: 1"): (
        *("datasets.made.name: found", "recipy: unknown key", "the key False (as YAML reads no"),
    ),
    ("models: [lent]", "strategies: [serial, dpd, ddp]"): (
        *("unknown model 'lent'", "unknown strategy 'dpd'"),
    ),
    ("folds: 1000", "workers: [64]"): (
        *("found 1000; the smallest class", "ddp with 64 workers x 1 thread needs 64 cores"),
    ),
}


@pytest.mark.parametrize(("mistakes", "told"), STAGES.items(), ids=["values", "names", "sums"])
def test_one_mistake_hides_no_other_of_its_stage(mistakes, told):
    config = yaml.safe_load(f"""{SWEPT}
studies:
  s: {{datasets: [digits], folds: 2, models: [lenet], strategies: [serial, ddp], workers: [2]}}
""")
    for mistake in mistakes:
        change = yaml.safe_load(mistake)
        (config if {*change} & {"datasets", "recipy", False} else config["studies"]["s"]).update(
            change
        )
    lines = "\n".join(checks.findings(config, cores=2))
    assert [part for part in told if part not in lines] == [], lines


@pytest.mark.parametrize("name", ["mine.yaml", "mine.json"])
@pytest.mark.parametrize(
    ("text", "content"),
    [('{"lr": 1e-3}', {"lr": 0.001}), ("# mine\nlr: 0.5\n", {"lr": 0.5})],
)
def test_a_config_is_read_as_snakemake_reads_it(tmp_path, name, text, content):
    (tmp_path / name).write_text(text)
    assert yaml_files.read(tmp_path / name) == content


@pytest.mark.parametrize(
    ("name", "line", "content", "said"),
    [
        ("mine.yaml", "", b"a: 2020-99-99\n", "month must be in 1..12"),
        ("mine.yaml", "", b"[" * 5000, "are nested too deeply"),
        ("mine.yaml", "", b"a: &a {b: *a}", "Circular reference"),
        ("mine.yaml", ":2", b"models:\n\ta: 1\n", "cannot start any token"),
        ("mine.yaml", ":2", b"models: [1, 2\n", "expected ',' or ']'"),
        ("mine.yaml", "", b"- 1\n- 2\n", "found a list; expected keys and values"),
        ("mine.yaml", "", b"", "found nothing; expected keys and values"),
        ("mine.yaml", "", b"caf\xe9: {}\n", "not UTF-8"),
        ("mine.json", "", b'{"a": 1,,}', "Expecting property name"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, line, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"(?s){re.escape(name)}{line}: .*{said}"):
        yaml_files.read(tmp_path / name)
