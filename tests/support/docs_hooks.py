"""Hooks of mkdocs: generated pages, links between folders, and no network access."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tests.support import docs_pages, paths

#: Tables wrap their text; the theme would make them scroll sideways.
STYLE = ".rst-content .wy-table-responsive table td { white-space: normal; }\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the pages outside ``docs``."""
    for uri, text in docs_pages.pages():
        files.append(File.generated(config, uri, content=text))
    files.append(File.generated(config, "site.css", content=STYLE))
    for origin, uri in docs_pages.ELSEWHERE.items():
        files.append(File.generated(config, uri, content=(paths.ROOT / origin).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt links to the site, and link the ids of checks and checklist items."""
    uri = page.file.src_uri
    origins = {uri: origin for origin, uri in docs_pages.ELSEWHERE.items()}
    if not uri.startswith(("checks/", "items/", "schemas/", "commands.md")):
        markdown = docs_pages.moved(markdown, origins.get(uri, f"docs/{uri}"))
    return docs_pages.linked(markdown, "../" * uri.count("/"), Path(uri).stem)


def on_post_build(config: MkDocsConfig) -> None:
    """Reject a site that loads anything from the network."""
    for file in Path(config.site_dir).rglob("*"):
        if file.suffix in (".html", ".css") and (load := docs_pages.network_loads(file.read_text("utf-8"))):
            raise PluginError(f"{file}: loads from the network: {load}")
