"""Whatever a config says, it is answered in lines that say where and what; never by a traceback."""

import copy
import datetime
import math
import re
import subprocess
import sys

import pytest
import yaml
from conftest import ENVIRONMENT, OF_CALLS, ROOT, program, train_program, warm
from project import WARM

from allcores_study.config import checks, grid, sweeps

FULL = yaml.safe_load("""
downloads: elsewhere
pinning: true
timeout: 60
models:
  lenet:
    width: 0.5
    batch_size: 8
    epochs: 2
    optimizer: {name: adam, lr: 0.1, betas: [0.9, 0.99], weight_decay: 0.1}
    loss: {name: cross_entropy, label_smoothing: 0.1}
    augmentation: {crop: 1, flip: true}
    precision: fp32
    memory_format: contiguous
  own: {name: mlp, hidden: [8], batch_size: 8, epochs: 1, optimizer: {name: sgd, lr: 0.1}}
  swept:
    {name: mlp, hidden: [8], batch_size: [8, 16], epochs: 1, sample: {count: 3, seed: 1},
     optimizer: {name: sgd, lr: [0.1, 0.01]}}
datasets:
  made:
    {name: fake, count: 60, test: 20, size: 8, classes: 3, channels: 1, noise: 1.0, seed: 1}
  timing: {name: fake, count: 60, classes: 3}
schedules:
  warm_restarts: {cycles: 2, growth: 2, floor: 0.001}
  one: {name: onecycle, warm_up: 0.3}
  steps: {name: multistep, milestones: [0.5], gamma: 0.1}
strategies:
  ddp: {bucket_mb: 5, hook: fp16}
  servers: {name: parameter_server, servers: 2}
  locked: {name: hogwild, locked: true}
studies:
  first:
    datasets: [made, digits]
    folds: 3
    models: [lenet, own]
    schedules: [warm_restarts, one, steps]
    strategies: [serial, ddp, servers, locked]
    workers: [1, 2]
    threads_per_worker: [1]
    seeds: [0, 1]
    train_sizes: [20, all]
    curves: true
    exclusive: true
    oversubscribe: false
    baseline: serial
    target_accuracy: 0.5
    references: [{model: lenet, label: x, seconds: 1, images: 10, cores: 2}]
  second: {datasets: [timing], folds: 2, models: [own], cores: [1, 2]}
  alone:
    {datasets: [made], folds: 3, models: [lenet], schedules: [warm_restarts], exclusive: true}
  third:
    datasets: [made]
    folds: 3
    models: [lenet]
    schedules: [warm_restarts]
    strategies: [serial]
    threads_per_worker: [2]
    against: alone
    seeds: [0]
  chosen:
    {datasets: [made], folds: 3, models: [swept], select: 2, metrics: [accuracy]}
""")
LEFT_OUT = object()
STRANGE = [
    *(None, True, 0, -1, 2.0, 0.5, 1e308, math.nan, math.inf, 2**63, "", "x", "18", "007", "1e-3"),
    *("nan", "None", "a b", "../up", [], [[]], [None], [{}], ["x", "x"], [1, [2]], {}, {"x": 1}),
    *({"name": ["npz"]}, {1: 2}, {None: 3}, "\0", "ä" * 300, "x" * 300, "mlp\n"),
    *(datetime.date(2024, 1, 1), b"x", {"x"}),
]


def paths(value, path=()):
    """Where something stands in a config."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else []
    items = enumerate(value) if isinstance(value, list) else items
    for key, below in items:
        yield from paths(below, (*path, key))


def replaced(path, value):
    config = copy.deepcopy(FULL)
    place = config
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    if value is LEFT_OUT:
        del place[path[-1]]
    return config


def test_the_config_that_is_spoilt_is_sound():
    assert checks.findings(FULL, cores=4) == []
    assert len(grid.expand(sweeps.expanded(FULL)).runs) > 100


@pytest.mark.parametrize(
    ("number", "path"),
    list(enumerate(paths(FULL))),
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_a_strange_value_or_none_is_answered_or_is_fine(number, path):
    """Each place gets a third of them, and its neighbour the next."""
    for value in (*STRANGE[number % 3 :: 3], LEFT_OUT):
        config = replaced(path, value if value is LEFT_OUT else copy.deepcopy(value))
        findings = checks.findings(config, cores=4)
        assert all("\n" not in line.strip() for line in findings)
        if not findings:
            table = grid.expand(sweeps.expanded(config))
            assert all("\0" not in run_path for run_path in table.runs)


@pytest.mark.parametrize(
    "content", [None, [], "text", 5, {}, [1], {"models": None}, {"studies": 1}]
)
def test_what_is_no_config_at_all_is_answered(content):
    assert checks.findings(content) != []


def dry_run(file, *arguments):
    command = [*warm(OF_CALLS, WARM / "call.py"), "-s", ROOT / "workflow" / "Snakefile"]
    command += ["-n", *(arguments or ("--cores", "4"))]
    return subprocess.run(
        [*command, "--configfile", file],
        cwd=file.parent,
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"models:\n  a: {epochs: 1}\n  a: {epochs: 2}\n", r":3: models\.a: duplicate key"),
        (b"models:\n  18: {epochs: 1}\n", "found the key 18, which is not a text"),
        (b"models:\n  caf\xe9: {}\n", "UTF-8|utf-8|UnicodeDecodeError|special characters"),
    ],
)
def test_a_file_that_is_no_config_is_answered_by_snakemake(tmp_path, text, line):
    file = tmp_path / "mine.yaml"
    file.write_bytes(text)
    run = dry_run(file)
    assert run.returncode != 0
    assert re.search(line, run.stdout + run.stderr), run.stdout + run.stderr
    assert not (tmp_path / "results").exists()


def test_what_a_call_cannot_do_is_said_in_a_line(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(FULL))
    no_cores = dry_run(file, "--cores", "0")
    assert "--cores: found 0; expected a whole number from 1" in no_cores.stderr
    (tmp_path / "results").touch()
    no_folder = dry_run(file)
    assert f"{tmp_path}/results: found a file, expected a folder" in no_folder.stderr
    assert "Traceback" not in no_cores.stderr + no_folder.stderr


@pytest.mark.parametrize("name", ["check_models", "start", "warm_node", "warm_process"])
def test_programs_that_nobody_calls_say_what_they_are_for(name):
    command = [sys.executable, ROOT / "scripts" / f"{name}.py", "--help"]
    run = subprocess.run(command, env=ENVIRONMENT, text=True, capture_output=True)
    assert len(run.stderr) > 50
    assert "Traceback" not in run.stderr


def test_quoted_labels_stay_texts(tmp_path):
    config = copy.deepcopy(FULL)
    for label in ("18", "007", "true", "NA", "1e3"):
        config["models"][label] = FULL["models"]["own"]
        config["studies"]["second"]["models"].append(label)
    config["studies"] = {"second": config["studies"]["second"]}
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(config))
    run = dry_run(file)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Train 007" in run.stdout + run.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("plan.py --cores 0", "plan.py: --cores: found 0; expected a number from 1"),
        ("plan.py --memory-mb 1", "plan.py: --memory-mb: found 1; expected a number from 100"),
        ("plan.py --memory-mb nan", "plan.py: --memory-mb: found nan; expected a number from 100"),
        ("report.py --config gone --study a --again b", "report.py: [Errno 2] No such file"),
        (f"report.py --config {__file__} --study a --again b", "test_bad_input.py: not JSON"),
        ("predict.py run data --threads 0", "predict.py: --threads: found 0; expected a number"),
        ("install.py nothing", "argument GROUP: invalid choice: 'nothing'"),
        ("install.py --help", "library, run, compiler, rivals, frameworks, export, notebook, test"),
        ("train.py --model=lenet --workers=4", "--workers: found 4; serial takes only one"),
        ("train.py --model=lenet --config=no.yaml", "No such file or directory: 'no.yaml'"),
        ("train.py --job=no.json", "No such file or directory: 'no.json'"),
        ("train.py --job=damaged.json", "damaged.json"),
        ("train.py", "--model is missing"),
        ("train.py --model=lent", "unknown model 'lent'"),
        ("train.py --model=lenet --strategy=nix", "unknown strategy 'nix'; known: serial"),
    ],
)
def test_what_a_program_does_not_take_is_told_in_a_line(tmp_path, command, said):
    name, *flags = command.split()
    of_name = train_program() if name == "train.py" else program(name.removesuffix(".py"))
    command = [*of_name, *flags]
    (tmp_path / "damaged.json").write_text("[")
    run = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, text=True, capture_output=True)
    assert "Traceback" not in run.stdout + run.stderr
    found = run.stdout if "--help" in flags else run.stderr
    assert said in " ".join(found.split())
    assert (run.returncode == 0) == ("--help" in flags or said == "")


def test_status_needs_nobody_who_reads_it(tmp_path):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(FULL))
    command = [sys.executable, ROOT / "scripts" / "status.py", "--configfile", "mine.yaml"]
    closed = ["bash", "-c", 'exec "$@" >&-', "bash", *map(str, command)]
    run = subprocess.run(closed, cwd=tmp_path, env=ENVIRONMENT, text=True, capture_output=True)
    assert (run.returncode, run.stderr) == (0, "")
