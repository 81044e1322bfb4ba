"""MkDocs hook that builds one site from all documents of the project.

Documents are at the top of the project, in ``docs``, and in the folders that they describe. Documents and all files
that they link to are copied to one folder, with the same relative paths, so that MkDocs checks every link.
"""

import re
import shutil
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).resolve().parents[1]
TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
GUIDES = {
    "People": ["users"],
    "Admins": ["admins"],
    "Operators": ["operators", "runbook", "proxy", "*"],
    "Developers": ["developers", "guarantees", "CONTRIBUTING.md"],
}
"""The pages directly in ``docs``, by section; the asterisk stands for the pages that no section names."""

_LINK = re.compile(r"(?:\]\(|^\[[^]]+\]: |src=\")([^)\s#:\"]+)", re.MULTILINE)
_copied: list[tempfile.TemporaryDirectory[str]] = []


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Copy the documents to a temporary folder, and set the site's navigation; called by MkDocs."""
    _copied.append(tempfile.TemporaryDirectory(prefix="coronet-docs-"))
    target = Path(_copied[-1].name)
    for path in linked_files():
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    config.docs_dir = str(target)
    config.nav = navigation(target)
    return config


def linked_files() -> set[Path]:
    """Return the documents and the files that they link to, directly or through other documents."""
    waiting = [*(ROOT / name for name in TOP), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs/images").iterdir()]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found and path.is_file() and path.is_relative_to(ROOT):
            found.add(path)
            if path.suffix == ".md":
                waiting += [(path.parent / link).resolve() for link in _LINK.findall(path.read_text(encoding="utf-8"))]
    return found


def navigation(target: Path) -> list[object]:
    """Return the site's navigation (``nav`` in mkdocs.yml) for the documents in the folder ``target``."""
    named = {name for names in GUIDES.values() for name in names} | {"architecture", "comparison"}
    others = sorted(path.stem for path in (target / "docs").glob("*.md") if path.stem not in named)
    sections: list[object] = [{"Home": ["README.md", "docs/comparison.md", "CHANGELOG.md", "SECURITY.md"]}]
    for title, names in GUIDES.items():
        pages = [page for name in names for page in (others if name == "*" else [name])]
        entries = [page if page.endswith(".md") else f"docs/{page}.md" for page in pages]
        if title == "Operators":
            entries += sorted(str(path.relative_to(target)) for path in (target / "compose").rglob("*.md"))
        sections.append({title: entries})
    for folder in ("architecture", "decisions", "experiments"):
        pages = sorted(path.relative_to(target).as_posix() for path in (target / "docs" / folder).glob("*.md"))
        first = [f"docs/{folder}.md"] if (target / "docs" / f"{folder}.md").exists() else []
        pages.sort(key=lambda page: not page.endswith("/README.md"))
        sections.append({folder.capitalize(): [*first, *pages]})
    return sections
