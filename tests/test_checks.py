"""A config's mistakes: all of them, a line each, with place and remedy."""

import copy
import re

import pytest
import yaml
from conftest import ROOT

from allcores.study import checks, yamlfile

GOOD = yaml.safe_load("""
models:
  lenet: {batch_size: 8, epochs: 1, optimizer: {name: adam, lr: 0.1}}
studies:
  first: {datasets: [digits], folds: 3, models: [lenet], strategies: [serial, ddp], workers: [1, 2]}
""")


def findings_of(change, **options):
    config = copy.deepcopy(GOOD)
    change(config)
    return checks.findings(config, **options)


def put(*path, value):
    def change(config):
        for key in path[:-1]:
            config = config.setdefault(key, {}) if isinstance(config, dict) else config[key]
        config[path[-1]] = value

    return change


STUDY = ("studies", "first")
LENET = ("models", "lenet")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (put(*LENET, "patience", value=3), "models.lenet.patience: needs `validation`, by which"),
        (put("models", "lenet", "swa", value=1), "models.lenet.swa: found 1"),
        (put("studys", value={}), "studys: unknown key; known: .*did you mean studies"),
        (put(*STUDY, "fold", value=3), "studies.first.fold: unknown key.*did you mean folds"),
        (
            put(*STUDY, "folds", value=1),
            "studies.first.folds: found 1; expected a whole number from 2",
        ),
        (
            put(*STUDY, "folds", value=175),
            "found 175; the smallest class of 'digits' has 174 samples",
        ),
        (put(*STUDY, "folds", value="test"), "'digits' has no test set of its own"),
        (
            put(*STUDY, "workers", value=[0]),
            "studies.first.workers.0: found 0; expected a whole number",
        ),
        (put(*STUDY, "workers", value=[]), "studies.first.workers: found .*; expected a list"),
        (
            put(*STUDY, "workers", value=[9]),
            "the batch of 8 of 'lenet' cannot be shared by 9 workers",
        ),
        (put(*STUDY, "seeds", value=[1, 1]), "studies.first.seeds: .*nothing may be listed twice"),
        (put(*STUDY, "train_sizes", value=[1200]), "found 1200; 'digits' leaves 1198 samples"),
        (put(*STUDY, "baseline", value="sreial"), "found 'sreial'; .*did you mean serial"),
        (put(*STUDY, "cores", value=[2]), "first.workers: conflicts with `cores`"),
        (put(*STUDY, "oversubscribe", value=True), "oversubscribe: needs `exclusive: true`"),
        (put(*STUDY, "target_accuracy", value=0.9), "target_accuracy: needs `curves: true`"),
        (put(*STUDY, "target_accuracy", value=90), "found 90; expected a number above 0 up to 1"),
        (put(*STUDY, "against", value="secnd"), "against: found 'secnd'; known: none"),
        (
            put(*STUDY, "references", value=[{"model": "lent", "label": "x", "seconds": 1}]),
            "references.0.model: found 'lent'; .*did you mean lenet",
        ),
        (put(*STUDY, "references", value=[{"model": "lenet"}]), "lacks label, seconds"),
        (put(*STUDY, "models", value=["lent"]), "unknown model 'lent'; .*did you mean lenet"),
        (
            put(*STUDY, "models", value=["mlp"]),
            "unknown model 'mlp'; .*give it an entry in `models`",
        ),
        (put(*STUDY, "datasets", value=["digit"]), "unknown dataset 'digit'.*did you mean digits"),
        (
            put(*STUDY, "schedules", value=["cos"]),
            "unknown schedule 'cos'; known: constant, cosine",
        ),
        (put(*STUDY, "strategies", value=["dpp"]), "unknown strategy 'dpp'; .*did you mean ddp"),
        (put("strategies", "x", value={"name": "dp"}), "strategies.x: unknown strategy 'dp'"),
        (put("strategies", "ddp", value={"bucket": 1}), "strategies.ddp.bucket: .*bucket_mb"),
        (
            put("datasets", "photos", value={"name": "npz", "path": "x", "scale": "maybe"}),
            "datasets.photos.scale: found 'maybe'; known: True, False",
        ),
        (put("datasets", "photos", value={"name": "npz"}), "datasets.photos: lacks path"),
        (
            lambda config: (
                put("datasets", "p", value={"name": "npz", "path": "no.npz"})(config),
                put(*STUDY, "datasets", value=["p"])(config),
            ),
            "datasets.p.path: there is no no.npz",
        ),
        (put("datasets", "a b", value={"name": "digits"}), "found 'a b'; a label has letters"),
        (put(*LENET, "widht", value=2), "models.lenet.widht: .*did you mean width"),
        (put(*LENET, "width", value="1.0"), "found the text '1.0'; .*: write 1$"),
        (put(*LENET, False, value=1), "found the key False, as YAML reads no, off, yes and on"),
        (put("timeout", value="1e400"), "found '1e400'; expected a number above 0[^:]*$"),
        (put(*LENET, "width", value="0.5x"), "found the text '0.5x'; expected a number"),
        (put(*LENET, "name", value="lennet"), "unknown model 'lennet'; .*did you mean lenet"),
        (put(*LENET, "import", value="no.such:Net"), "no.such:Net cannot be imported"),
        (put(*LENET, "optimizer", "name", value="adm"), "unknown optimizer 'adm'.*mean Adam"),
        (put(*LENET, "optimizer", "lr", value="1e-3"), "found '1e-3'.*write 0.001"),
        (put(*LENET, "optimizer", "lr", value=-0.1), "found -0.1; expected a number above 0$"),
        (put(*LENET, "optimizer", "eps", value="1e-8"), "the text '1e-8'.*write 1e-08"),
        (put(*LENET, "optimizer", "beta", value=1), "models.lenet.optimizer.beta: unknown key"),
        (put(*LENET, "loss", value={"name": "entropy"}), "unknown loss 'entropy'"),
        (
            put(*LENET, "loss", value={"name": "nll", "ignore_index": 1}),
            "ignore_index: unknown key",
        ),
        (
            lambda config: config["models"]["lenet"].update({"name": "mlp", "import": "a.b:Net"}),
            "lenet.name: conflicts with `import`; expected one of them",
        ),
        (put(*LENET, "augmentation", value={"flop": True}), "flop: unknown key.*mean flip"),
        (put("strategies", "ddp", value={"hook": "fp61"}), "ddp.hook: found 'fp61'.*mean fp16"),
        (
            put("strategies", "ps", value={"name": "parameter_server", "servers": 0}),
            "strategies.ps.servers: found 0; expected a whole number from 1",
        ),
        (
            lambda config: (
                put(*LENET, "optimizer", "name", value="adafactor")(config),
                put(*STUDY, "strategies", value=["serial", "ddp", "ring"])(config),
            ),
            r"strategies\.2: ring updates each weight separately, which Adafactor of 'lenet'",
        ),
        (put(*LENET, "memory_format", value="channel_last"), "'channel_last'.*mean channels_last"),
        (put(*LENET, "epochs", value=0), "models.lenet.epochs: found 0"),
        (lambda config: config["models"]["lenet"].pop("epochs"), "models.lenet: lacks epochs"),
        (lambda config: config.pop("models"), "the config: lacks models"),
    ],
)
def test_each_mistake_is_one_line_that_says_where_and_what_is_allowed(change, line):
    findings = findings_of(change)
    assert any(re.search(line, finding) for finding in findings), findings
    assert all("\n" not in finding for finding in findings)


def test_a_cell_that_needs_too_many_cores():
    (finding,) = findings_of(put(*STUDY, "threads_per_worker", value=[2]), cores=3)
    assert "studies.first.workers: ddp with 2 workers x 2 threads needs 4 cores" in finding
    assert "this call has 3: give it --cores 4" in finding


def test_a_cell_may_need_more_cores_where_that_is_asked_for():
    def change(config):
        put(*STUDY, "threads_per_worker", value=[2])(config)
        config["studies"]["first"] |= {"exclusive": True, "oversubscribe": True}

    assert not findings_of(change, cores=3)


def test_a_study_is_held_against_one_that_is_exclusive():
    def change(config):
        config["studies"]["second"] = dict(config["studies"]["first"])
        put(*STUDY, "against", value="second")(config)

    findings = findings_of(change)
    assert any("first.against: 'second' needs `exclusive: true`" in line for line in findings)


@pytest.mark.parametrize("file", sorted((ROOT / "config").rglob("*.yaml")), ids=lambda f: f.stem)
def test_the_configs_that_come_along_have_nothing_to_be_said_against(file):
    assert not checks.findings(yaml.safe_load(file.read_text()), [file], cores=48)


def test_a_study_and_the_one_it_is_held_against_have_one_way_each():
    def change(config):
        first = config["studies"]["first"]
        config["studies"]["second"] = first | {"exclusive": True, "threads_per_worker": [1, 2]}
        put(*STUDY, "against", value="second")(config)

    assert any("'second' has 'serial' with several workers" in line for line in findings_of(change))
    assert any("'first' has 'ddp' with several workers" in line for line in findings_of(change))


def test_cores_that_leave_no_worker():
    def change(config):
        del config["studies"]["first"]["workers"]
        config["studies"]["first"] |= {"strategies": ["parameter_server"], "cores": [1, 2]}

    (finding,) = findings_of(change)
    assert "first.cores: parameter_server has 1 servers, which leaves no core" in finding


def test_all_findings_come_at_once_with_file_and_line(tmp_path):
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
    file.write_text(text)
    findings = checks.findings(yaml.safe_load(text), [file])
    assert [finding.split(": ")[0] for finding in findings] == [
        f"{file}:{line}" for line in (4, 5, 9, 12)
    ]


def test_what_the_command_line_gives_is_typed():
    given = {"epochs": "3", "lr": "0.1", "flip": "true", "name": "adam", "workers": ["1", "2"]}
    assert yamlfile.typed(given) == {
        "epochs": 3,
        "lr": 0.1,
        "flip": True,
        "name": "adam",
        "workers": [1, 2],
    }


SWEPT = """
models:
  lenet: {batch_size: 8, epochs: 1, optimizer: {name: sgd, lr: [0.05, 0.1]}}
"""


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


def test_one_mistake_hides_no_other():
    config = yaml.safe_load(f"""{SWEPT}
datasets: {{made: {{name: []}}}}
recipy: fixed
no: 1
studies:
  s: {{datasets: [digits], folds: 2, models: [lent], strategies: [serial, dpd, ddp], workers: [64]}}
""")
    lines = "\n".join(checks.findings(config, cores=2))
    for part in (
        "recipy: unknown key",
        "the key False, as YAML reads no",
        "unknown model 'lent'",
        "unknown strategy 'dpd'",
        "ddp with 64 workers x 1 threads needs 64 cores",
    ):
        assert part in lines, part


@pytest.mark.parametrize("name", ["mine.yaml", "mine.json"])
@pytest.mark.parametrize(
    ("text", "content"),
    [('{"lr": 1e-3}', {"lr": 0.001}), ("# mine\nlr: 0.5\n", {"lr": 0.5})],
)
def test_a_config_is_read_as_snakemake_reads_it(tmp_path, name, text, content):
    (tmp_path / name).write_text(text)
    assert yamlfile.read(tmp_path / name) == content


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 2020-99-99\n", "month must be in 1..12"),
        ("[" * 5000, "are nested too deeply"),
        ("a: &a {b: *a}", "Circular reference"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, text, said):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ValueError, match=rf"mine\.yaml: .*{said}"):
        yamlfile.read(tmp_path / "mine.yaml")


def test_a_damaged_json_is_told_as_one(tmp_path):
    (tmp_path / "mine.json").write_text('{"a": 1,,}')
    with pytest.raises(ValueError, match=r"mine\.json: Expecting property name"):
        yamlfile.read(tmp_path / "mine.json")
