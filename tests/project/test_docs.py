"""README and documentation: short, in step with what was measured, and their code is right."""

import re
import runpy
import subprocess
import sys

import pytest
import yaml
from conftest import ENVIRONMENT, LONG, ROOT, program

from allcores_study.config import checks, component, registry

sys.path.insert(0, str(ROOT / "docs"))
import measured

PAGES = measured.pages()
# What a config in a page leaves out.
BASE = """
models:
  lenet: {batch_size: 960, epochs: 8, optimizer: {name: adam, lr: 0.001}}
studies:
  first: {datasets: [digits], folds: 5, models: [lenet]}
"""


def blocks(language):
    """[(page, code), ...] of all code blocks in a language."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [(page, code) for page in PAGES for code in pattern.findall(page.read_text())]


def commands():
    """All commands in the pages, with the comments after them."""
    pattern = re.compile(r"^ {4}((?:make|\.venv/bin/|sbatch |snakemake ).*)$", re.MULTILINE)
    return [line for page in PAGES for line in pattern.findall(page.read_text())]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse words it otherwise")
def test_the_commands_are_what_the_programs_say():
    """Else `make manual`, and commit what it writes."""
    manual = runpy.run_path(str(ROOT / "docs" / "manual.py"))
    assert manual["commands"]() == manual["COMMANDS"].read_text()


def test_the_readme_is_read_in_two_minutes():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_what_was_measured_comes_from_its_file(page):
    """Else `make manual`, and commit what it writes."""
    assert measured.filled(page.read_text()) == page.read_text()


def test_the_glossary_has_one_word_for_one_thing():
    """Each word once, in order, and no two for one meaning; the files that it names are there."""
    text = (ROOT / "docs" / "glossary.md").read_text()
    meanings = []
    for section in text.split("\n## ")[1:]:
        rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.MULTILINE)[1:]
        words = [word for row, _ in rows for word in row.split(", ")]
        assert len(rows) > 10 and len(words) == len({*words})
        assert [row for row, _ in rows] == sorted((row for row, _ in rows), key=str.casefold)
        meanings += [meaning for _, meaning in rows]
    assert len(meanings) == len({*meanings})
    for path in re.findall(r"`(\w+/[\w/]*)(?:\.py)?`", text):
        if path != "calls/":
            places = registry.ENGINE / path, registry.LIBRARY / path
            assert any(at.is_dir() or at.with_suffix(".py").exists() for at in places), path


def test_the_site_is_whole(tmp_path):
    """No link leads nowhere, no page stands alone."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    quiet = re.search(r"(NO_\w+)=1 \$\(BIN\)/mkdocs", (ROOT / "Makefile").read_text())[1]
    environment = ENVIRONMENT | {quiet: "1"}
    build = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True)
    assert build.returncode == 0, build.stderr
    assert "not included in the" not in build.stderr
    assert "end of life" not in build.stderr
    # Read from the disk, it asks no other host, and search works by a shim and a script.
    assert (tmp_path / "search" / "search_index.js").exists()
    assert (tmp_path / "javascripts" / "iframe-worker.js").exists()
    for page in tmp_path.rglob("*.html"):
        text = page.read_text()
        assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=\"https?:", text), page
        # Files of the repository are copied without search.
        assert "iframe-worker.js" in text or page.is_relative_to(tmp_path / "source")


def test_code_in_pages_is_not_cut():
    """On a screen of 1,400 pixels a line has room for 122 characters: stylesheets/wide.css."""
    assert "stylesheets/wide.css" in (ROOT / "mkdocs.yml").read_text()
    for page in PAGES:
        for block in re.findall(r"^```.*?^```|(?:^    [^\n]*\n)+", page.read_text(), re.M | re.S):
            assert max(map(len, block.splitlines())) <= 126, page


@pytest.mark.parametrize(("page", "code"), blocks("yaml"))
def test_a_config_in_a_page_has_no_mistake(page, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for cached in (component.source_of, component.imported):
        cached.cache_clear()  # what another test has not found
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "nets.py").write_text("def Net(classes): ...\n")
    (tmp_path / "my_package" / "parts.py").write_text(
        "def Focal(gamma): ...\ndef noise(inputs, generator, sigma): ...\n"
    )
    (tmp_path / "my_package" / "pipes.py").write_text(
        "IS_ESTIMATOR = True\n\n\ndef pca_and_svc(kept): ...\n"
    )
    config = yaml.safe_load(BASE)
    for section, entries in yaml.safe_load(code).items():
        config[section] = config.get(section, {}) | entries
    for name, model in config["models"].items():
        is_whole = "batch_size" in model or component.is_estimator(model)
        if not is_whole:  # how it is trained is said elsewhere
            like = {} if name in registry.models() else {"name": "lenet"}
            config["models"][name] = config["models"]["lenet"] | like | model
    for study in config["studies"].values():
        for name in set(study["models"]) - set(config["models"]):
            config["models"][name] = {"name": name} | config["models"]["lenet"]
    problems = list(checks.findings(config))
    # Files of the reader's own.
    assert not [text for text in problems if "path" not in text], problems


def test_the_commands_of_the_pages_are_there():
    targets = set(re.findall(r"^([\w$() -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets = {word for line in targets for word in line.split()} | {"SIZE=full"}
    targets |= {"cores", "scratch_vs_builtin", "data_size", "kfold", "hogwild"}
    helps = {}
    assert len(commands()) > 20
    for line in commands():
        words = line.partition("#")[0].partition("   ")[0].split()
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, line
        if words[0].endswith("/python") and "scripts/" in words[1]:
            name = words[1].removeprefix("scripts/").removesuffix(".py")
            if name not in helps and name != "install":
                ran = subprocess.run(
                    list(map(str, [*program(name), "--help"])),
                    env=ENVIRONMENT,
                    text=True,
                    capture_output=True,
                )
                helps[name] = ran.stdout
            flags = [word for word in words[2:] if word.startswith("--")]
            assert all(flag.partition("=")[0] in helps.get(name, "") for flag in flags), line
        elif words[0].endswith("/python") and words[1] != "-m":
            assert (ROOT / words[1]).exists(), line


def test_what_is_left_to_longer_tests_is_there():
    """Names of tests that have others since would be of tests that run always."""
    texts = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in LONG if f"def {name}(" not in texts] == []


def test_the_strategy_of_the_page_passes_the_type_checker(tmp_path):
    """Else who adds it, as the page says, has `make lint` fail."""
    page = (ROOT / "docs" / "reading.md").read_text()
    (strategy,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "sign_sgd.py").write_text(strategy)
    # With what `make lint` has cached, it takes a second in place of twenty.
    command = [sys.executable, "-m", "mypy", tmp_path / "sign_sgd.py"]
    told = subprocess.run(list(map(str, command)), cwd=ROOT, text=True, capture_output=True)
    assert told.returncode == 0, told.stdout + told.stderr
