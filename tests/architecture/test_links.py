"""Links between documents lead to files and headings that exist."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "compose/**/*.md", "tests/**/*.md") for path in ROOT.glob(pattern)
)
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?\)")
_ELSEWHERE = ("http://", "https://", "mailto:", "xmpp:")


@cache
def anchors(document: Path) -> set[str]:
    """Return the fragments that lead to headings, formed as GitHub and the documentation site form them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text.lower()).strip()))
    return found


def broken_links(document: Path) -> list[str]:
    """Return the links of a document within the project that lead nowhere."""
    broken = []
    for link in _LINK.findall(_CODE.sub("", document.read_text(encoding="utf-8"))):
        if link.startswith(_ELSEWHERE):
            continue
        path, _, fragment = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (fragment and target.suffix == ".md" and fragment not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_of_a_document_resolve(document: Path) -> None:
    assert broken_links(document) == []


def test_a_broken_link_is_reported(tmp_path: Path) -> None:
    (tmp_path / "here.md").write_text("# Here & there\n[a](here.md#here--there) [b](gone.md) [c](here.md#gone)\n")
    assert broken_links(tmp_path / "here.md") == ["gone.md", "here.md#gone"]


def test_each_decision_record_has_a_unique_number_in_its_heading() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    numbers = [record.name[:4] for record in records]
    assert sorted(set(numbers)) == numbers
    for record in records:
        assert record.read_text(encoding="utf-8").startswith(f"# {int(record.name[:4])}. "), record.name
