"""Programs of ours never run Python code of the current directory, whoever wrote it."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from service.embedded.deployment_experiment.experiment import _Publisher
from service.embedded.deployment_experiment.publication_plan import PublicationPlan
from service.feeds.sandbox.parser_client import ParserClient
from service.feeds.sandbox.protocol import Document
from tests.support.feed_documents import item, rss
from tests.support.netns import CORONET
from tests.support.raw_http import ok, raw_publisher

SHADOWED = ("sitecustomize", "usercustomize", "json", "lxml", "msgspec", "feedparser", "service", "encodings", "typing")
FEED = rss([item("a")])
URL = "https://example.com/feed"


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with modules named as those that our programs import; each leaves a mark when it runs."""
    directory, marks = tmp_path / "downloads", tmp_path / "marks"
    directory.mkdir()
    marks.mkdir()
    for name in SHADOWED:
        (directory / f"{name}.py").write_text(f"open({str(marks / name)!r}, 'w').close()\n")
    monkeypatch.chdir(directory)
    return marks


def marked(marks: Path) -> list[str]:
    return sorted(path.name for path in marks.iterdir())


async def test_the_parser_runs_no_code_of_the_current_directory(marks: Path) -> None:
    async with ParserClient() as pool:
        reading = await pool.parse_document(Document(FEED, URL, {}))
    assert marked(marks) == []
    assert reading.feed is not None


async def test_the_deployment_runs_no_code_of_the_current_directory(marks: Path) -> None:
    async with _Publisher(PublicationPlan(1, 2, time.time(), 1.0)) as publisher:
        assert publisher.port > 0
    assert marked(marks) == []


async def test_a_program_and_its_parser_run_no_code_of_the_current_directory(marks: Path) -> None:
    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(ok(FEED, "Content-Type: application/rss+xml"))
        await writer.drain()

    async with raw_publisher(answer) as publisher:
        program = await asyncio.create_subprocess_exec(
            *(CORONET, "inspect", publisher.url()),
            env={**os.environ, "CORONET_ALLOW_PRIVATE": "true"},
            stdout=asyncio.subprocess.PIPE,
        )
        shown, _ = await program.communicate()
    assert marked(marks) == []
    assert b"Title a" in shown
