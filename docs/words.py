"""Find words that do not read as English does in the pages, the code and its messages.

    python docs/words.py            prints file:line: what stands there; what to write

`make lint` runs it. docs/glossary.md has the terms.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Pattern -> what to write.
WORDS = {
    r"\bbut for\b": "except",
    r"\banew\b": "again, or rebuild",
    r", too(?=[.,;:)]|$)": "also, before the verb",
    r"\breckon\w*": "estimate",
    r"\bfor ever\b": "forever",
    r"\b(?:go|goes|gone|went) on with\b": "continue, resume",
    r"\bheld-out parts?\b": "test fold",
    r"\bmade (?:again|anew)\b": "rebuilt",
    r"\b(?:try|tries|tried|trying) out\b": "smoke test, check",
    r"(?-i:^|\. )(?-i:With it,)": "a subject",
    r"\bof whom\b": "who",
    r"\bmiscalled\b|\bthereof\b|\btherein\b|\bwhereof\b": "plain words",
}
SUFFIXES = {".md", ".py", ".yaml", ".yml", ".smk", ".toml", ".html", ".sh", ""}
# What quotes these words, or has them in names of others' files.
EXCEPT = {"docs/words.py", "CHANGELOG.md", "LICENSE", "requirements.lock"}


def files():
    """The files of the repository that people read."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True)
    names = listed.stdout.split() if listed.returncode == 0 else []
    read = [name for name in names if name not in EXCEPT and Path(name).suffix in SUFFIXES]
    return [name for name in read if (ROOT / name).is_file()]


def findings():
    """Yield "file:line: what stands there; what to write"."""
    for name in files():
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            for pattern, instead in WORDS.items():
                if found := re.search(pattern, line, re.IGNORECASE):
                    yield f"{name}:{number}: {found[0].strip(', ')!r}; write: {instead}"


if __name__ == "__main__":
    found = list(findings())
    print(*found, sep="\n")
    sys.exit(bool(found))
