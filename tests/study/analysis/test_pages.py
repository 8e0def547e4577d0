"""What a browser makes of a page: nothing but tables is wider than a phone's screen."""

import json
import re
import shutil
import subprocess

import pandas as pd
import pytest

from allcores_study.analysis import writing

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium")
# Measures the page, then prints it, as far as its own script is concerned.
MEASURE = """<script>
  const width = query => document.querySelector(query).scrollWidth;
  const found = {page: width("html"), table: width(".rows table")};
  found.align = getComputedStyle(document.querySelector(".facts td")).verticalAlign;
  dispatchEvent(new Event("beforeprint"));
  found.folded = [...document.querySelectorAll("details")].filter(detail => !detail.open).length;
  document.title = JSON.stringify(found);
</script>"""


def measured(page, file, width):
    file.write_text(page.replace("</body>", f"{MEASURE}</body>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"]
    command = [BROWSER, *flags, "--dump-dom", file.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return json.loads(re.search("<title>(.*?)</title>", shown)[1])


def test_a_page_fits_a_phone_and_paper(tmp_path):
    name = "a_setting_with_a_long_name"
    frame = pd.DataFrame({f"{name}{place}": ["a long value"] * 3 for place in range(9)})
    frame["workers"] = [1, 2, 4]
    described = dict.fromkeys(("title", "section", "caption"), "t")
    table = described | {"name": "t", "order": 1, "leading": 0} | writing.cells(frame, {})
    figure = table | {"name": "f", "svg": "<svg width='300' height='9'/>", "tables": [table]}
    facts = [("precision, memory format, and more", f"{name}{name}"), ("machine", 9 * "a word ")]
    page = writing.page_of(title="t", line="l", methods=facts, leading=[table, figure])
    found = measured(page, tmp_path / "page.html", 500)
    assert found["page"] <= 500
    assert found["align"] == "top", "a fact stands beside the first line of its name"
    assert found["table"] > 1500, "it is scrolled"
    assert found["folded"] == 0, "on paper"
