"""Links of the pages to files of the repository, which a site does not have; see mkdocs.yml."""

import re
from pathlib import Path

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#\s]*)\)")


def on_page_markdown(markdown, page, config, files):
    """A link to a file outside of docs/ leads to the repository on the web, if that is known."""
    source, folder = config.extra["source"], Path(page.file.abs_src_path).parent

    def replaced(link):
        text, target = link.groups()
        file = (folder / target).resolve()
        if file.is_relative_to(ROOT / "docs"):
            return link[0]
        if not file.exists():
            raise PluginError(f"{page.file.src_path}: {target} does not exist")
        return f"[{text}]({source}/{file.relative_to(ROOT)})" if source else text

    return LINK.sub(replaced, markdown)
