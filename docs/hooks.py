"""Links of the pages to files of the repository, which a site does not have; see mkdocs.yml."""

import html
import re
from pathlib import Path

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#\s]*)\)")
SHOWN = (".py", ".yaml", ".yml", ".toml", ".smk", ".sh", ".md", "")
PAGE = "<!doctype html><meta charset=utf-8><title>{name}</title><pre>{text}</pre>"

linked = set()  # files of the repository, from the root, to which pages link


def on_page_markdown(markdown, page, config, files):
    """A link to a file outside of docs/ leads to the repository on the web, if that is known, and
    else to a copy in the site; a folder has no copy."""
    source, folder = config.extra["source"], Path(page.file.abs_src_path).parent

    def replaced(link):
        text, target = link.groups()
        file = (folder / target).resolve()
        if file.is_relative_to(ROOT / "docs"):
            return link[0]
        if not file.exists():
            raise PluginError(f"{page.file.src_path}: {target} does not exist")
        path = file.relative_to(ROOT)
        if source:
            return f"[{text}]({source}/{path})"
        if not file.is_file() or file.suffix not in SHOWN:
            return text
        linked.add(path)
        up = "../" * page.file.dest_uri.count("/")
        # As HTML: mkdocs knows no such page.
        return f'<a href="{up}source/{path}.html">{html.escape(text)}</a>'

    return LINK.sub(replaced, markdown)


def on_post_build(config):
    """Write the files to which pages link."""
    for path in linked:
        page = Path(config.site_dir, "source", f"{path}.html")
        page.parent.mkdir(parents=True, exist_ok=True)
        text = html.escape((ROOT / path).read_text())
        page.write_text(PAGE.format(name=path, text=text))
