"""What `make` installs, and from where."""

import re
import sys
import tomllib

import pytest
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
    pinned = dict(pin.lower().split("==") for pin in groups["run"] + groups["test"])
    assert {name: locked.get(name) for name in pinned if not name.startswith("torch")} == {
        name: version for name, version in pinned.items() if not name.startswith("torch")
    }
    entries = re.split(r"^(?=\w)", install.LOCK.read_text(), flags=re.MULTILINE)
    assert all("--hash=sha256:" in entry for entry in entries if "==" in entry)
