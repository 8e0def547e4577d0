"""What `make` installs, and from where."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

sys.path.append(str(ROOT / "scripts"))
import install

LISTED = """
global.cert='/etc/certificates.crt'
global.extra-index-url='https://one/simple https://two/simple'
user.index-url='https://user/simple'
global.index-url='https://global/simple'
install.find-links='/wheels\\n/more'
:env:.timeout='180'
"""


def test_pips_settings_are_handed_to_uv():
    assert install.settings_of_pip(LISTED) == {
        "SSL_CERT_FILE": "/etc/certificates.crt",
        "UV_INDEX": "https://one/simple https://two/simple",
        "UV_DEFAULT_INDEX": "https://user/simple",
        "UV_FIND_LINKS": "/wheels,/more",
    }
    assert install.settings_of_pip("") == {}


@pytest.mark.parametrize("reachable", [False, True])
@pytest.mark.parametrize("broken", [None, "uv==", "-m uv"])
def test_uv_installs_and_pip_where_it_cannot(monkeypatch, reachable, broken):
    called = []

    def run(*command, **environment):
        called.append(" ".join(command))
        return broken is None or broken not in called[-1]

    monkeypatch.setattr(install, "run", run)
    monkeypatch.setattr(install, "answers", lambda url: reachable)
    assert install.install(["run", "test"])
    from_cpu_builds = ["download.pytorch.org/whl/cpu" in command for command in called]
    groups = ["--group run --group test" in command for command in called]
    assert from_cpu_builds == [reachable and asked for asked in groups]
    by = ["uv" if "-m uv" in command else "pip" for command in called]
    assert (
        by
        == {
            None: ["pip", "uv"],
            "uv==": ["pip", "pip", "pip"],
            "-m uv": ["pip", "uv", "pip", "pip"],
        }[broken]
    )


@pytest.mark.parametrize("written", [False, True])
def test_bytecode_is_made_where_imports_write_none(monkeypatch, written):
    called = []
    monkeypatch.setattr(install, "run", lambda *command, **_: called.append(command) is None)
    monkeypatch.setattr(install, "answers", lambda url: False)
    monkeypatch.setattr(sys, "dont_write_bytecode", not written)
    assert install.install(["run"])
    assert ("--compile-bytecode" in called[-1]) == (not written)


def test_what_does_not_answer_is_not_waited_for():
    assert not install.answers("http://127.0.0.1:9/")


def test_all_that_is_pinned_is_locked_with_digests():
    """Else `make lock`, and commit what it writes."""
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", install.LOCK.read_text(), re.MULTILINE))
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    pins = [*groups["library"], *groups["run"], *groups["test"]]
    pinned = dict(pin.lower().split("==") for pin in pins if isinstance(pin, str))
    assert {name: locked.get(name) for name in pinned if not name.startswith("torch")} == {
        name: version for name, version in pinned.items() if not name.startswith("torch")
    }
    entries = re.split(r"^(?=\w)", install.LOCK.read_text(), flags=re.MULTILINE)
    assert all("--hash=sha256:" in entry for entry in entries if "==" in entry)


def test_both_containers_are_made_of_the_same_by_the_same_steps():
    """No builder is needed for this; .github/workflows/tests.yml builds and runs one."""
    image = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    recipe = (ROOT / "apptainer.def").read_text()
    copied = re.findall(r"^COPY (.+) \S+$", image, re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    assert re.findall(r"^    (\S+) /opt/allcores/\1$", recipe, re.MULTILINE) == sources
    assert all((ROOT / source).exists() for source in sources)
    of_wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert {Path(name).parts[0] for name in of_wheel["targets"]["wheel"]["force-include"]} <= set(
        sources
    )
    steps = re.search(r"^RUN (.+)$", image, re.MULTILINE)[1]
    assert [step.strip() for step in steps.split("&&")] == re.search(
        r"%post\n    cd /opt/allcores\n((?:    .+\n)+)", recipe
    )[1].strip().replace("    ", "").splitlines()
    digests = [
        re.findall(r"python\S*(@sha256:[0-9a-f]{64})$", file, re.MULTILINE)
        for file in (image, recipe)
    ]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 1


FIND = "import pkgutil; print([one.name for one in pkgutil.iter_modules() if one.ispkg])"
PLUGIN = "snakemake_executor_plugin_allcores_slurm"


def test_snakemake_finds_our_plugin_after_make_and_in_a_conda_environment(tmp_path, monkeypatch):
    """As it looks for plugins: among the packages that Python could import."""
    variables = yaml.safe_load((ROOT / "environment.yml").read_text())["variables"]
    monkeypatch.setattr(install.sysconfig, "get_path", {"purelib": str(tmp_path)}.get)
    install.add_to_path()
    folders = (tmp_path / "allcores.pth").read_text().split()
    for environment in (variables, {"PYTHONPATH": ":".join(folders)}):
        command = [sys.executable, "-S", "-c", FIND]
        found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert {PLUGIN, "allcores_study"} <= {*ast.literal_eval(found.stdout)}, found.stderr
