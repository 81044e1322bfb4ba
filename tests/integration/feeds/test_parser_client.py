"""A malicious document costs one process: it raises a FeedError, and the next document is parsed."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from service.errors import BrokenFeed, EmptyBody, FeedError, NotAFeed, ParseKilled
from service.feeds.sandbox import parser_client
from service.feeds.sandbox.parser_client import ParserClient
from service.feeds.sandbox.protocol import DetectChanges, Document
from service.model import FeedLink
from tests.support.feed_documents import item, page, rss
from tests.support.waiting import until_so

URL = "https://example.com/feed"
GOOD = rss([item("a")])


def rss_with(inner: bytes) -> bytes:
    return b'<rss version="2.0"><channel><title>T</title>' + inner + b"</channel></rss>"


HOSTILE = {
    "100,000 attributes": rss_with(b"<item " + b" ".join(b'a%d="1"' % n for n in range(100_000)) + b"/>"),
    "a million unclosed tags in a page": b"<html>" + b"<a>" * 1_000_000,
    "billion laughs": b'<!DOCTYPE r [<!ENTITY a0 "lol">'
    + b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 12))
    + b"]>"
    + rss_with(b"<item><title>&a11;</title></item>"),
    "quadratic blow-up": b'<!DOCTYPE r [<!ENTITY a "%s">]>' % (b"a" * 100_000) + rss_with(b"&a;" * 100_000),
    "no such character": rss_with(b"<item><title>&#x110000;</title></item>"),
    "deep JSON": b'{"version": "https://jsonfeed.org/version/1.1", "items": ' + b"[" * 1_000_000,
    "a title of 5 MB": rss_with(b"<item><title>" + b"x" * 5_000_000 + b"</title></item>"),
    "100,000 entries": rss_with(b"<item><title>x</title></item>" * 100_000),
    "a million comments": b"<!---->" * 700_000,
}
ENDLESS = {
    "a million unclosed tags": b"<a>" * 1_000_000,
    "100,000 nested items": b"<item>" * 100_000 + b"</item>" * 100_000,
    "300,000 nested skipHours": b"<skipHours>" * 300_000,
    "an author of 120 kB": b"<item><title>x</title><author>" + b"a" * 120_000 + b"@b</author></item>",
}
"""What takes feedparser minutes."""


@pytest.fixture
async def parser() -> AsyncIterator[ParserClient]:
    async with ParserClient() as parser:
        yield parser


async def read_title(parser: ParserClient, body: bytes = GOOD) -> str:
    reading = await parser.parse_document(Document(body, URL, {"content-type": "text/xml"}))
    assert reading.feed is not None
    return reading.feed.entries[0].title


def children(of: int | str = "self") -> list[int]:
    """Return the parser processes among a process's children; servers shared by tests may be children too."""
    listed = [int(pid) for each in Path(f"/proc/{of}/task").glob("*/children") for pid in each.read_text().split()]
    return [pid for pid in listed if is_parser(pid)]


def reader_of(parser: int) -> int:
    """Return the child of a parser process, which reads the documents."""
    (reader,) = children(parser)
    return reader


def is_parser(pid: int) -> bool:
    try:
        return b"parser_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def cpu_ticks(pid: int) -> int:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


def state(pid: int) -> str:
    """Return the process state (R, S, T, …) as ps shows it; "" for a process that has ended."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if letter == "Z" else letter


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_feed_is_parsed_and_a_page_has_feed_links(parser: ParserClient) -> None:
    assert await read_title(parser) == "Title a"
    reading = await parser.parse_document(Document(page(["/rss"]), URL, {}))
    assert (reading.feed, reading.links) == (None, (FeedLink("https://example.com/rss"),))


@pytest.mark.parametrize(("body", "kind"), [(b"", EmptyBody), (page(), NotAFeed), (b"<rss>", BrokenFeed)])
async def test_errors_are_raised_with_their_type(parser: ParserClient, body: bytes, kind: type[FeedError]) -> None:
    with pytest.raises(kind):
        await parser.parse_document(Document(body, URL, {}))


@pytest.mark.parametrize("what", HOSTILE)
async def test_the_document_after_a_hostile_one_is_parsed(parser: ParserClient, what: str) -> None:
    with suppress(FeedError):
        assert (await parser.parse_document(Document(HOSTILE[what], URL, {}))).feed is not None
    assert await read_title(parser) == "Title a"


async def parse_endless(body: bytes) -> str:
    """Let a parser parse an endless document; return the title that it then reads from another one."""
    async with ParserClient() as parser:
        with pytest.raises(FeedError):
            await parser.parse_document(Document(rss_with(body), URL, {"content-type": "text/xml"}))
        return await read_title(parser)


async def test_documents_after_endless_ones_are_parsed() -> None:
    titles = await asyncio.gather(*map(parse_endless, ENDLESS.values()))  # at once, because each takes seconds
    assert set(titles) == {"Title a"}


LARGE_TEXT = b"<p><b>x</b>" + b"x" * 4_000_000, URL, {"content-type": "text/html"}
EVIL_SELECTORS = {
    "XPath of quartic time": ("xpath=count(//a[count(//a[count(//a[count(//a) > 1]) > 1]) > 1])", b"<a>x</a>" * 2_000),
    "XPath of all pairs": ("xpath=//a/following::a/preceding::a/following::a/@id", b"<a id=x>x</a>" * 20_000),
    "deeply nested XPath": ("xpath=" + "(" * 190, b"<p>x"),
    "XPath of many predicates": ("xpath=//a" + "[1]" * 60, b"<a>x</a>" * 50_000),
    "CSS of quadratic time": ("a:nth-last-child(2n+1) ~ a:nth-child(odd) ~ a", b"<a>x</a>" * 30_000),
    "JSONPath of all values": ("json=$" + "..*" * 60, b"[" * 500 + b"0," * 100_000 + b"0" + b"]" * 500),
    "JSONPath of many slices": ("json=$" + "[::-1]" * 30 + "[*]" * 10, b"[" + b"0," * 1_000_000 + b"0]"),
}


async def parse_with(selector: str, body: bytes) -> tuple[str, float]:
    """Let a parser apply a selector; return the next title it reads, and the seconds that passed."""
    async with ParserClient() as parser:
        began_s = time.monotonic()
        with suppress(FeedError):
            found = await parser.parse_document(Document(body, URL, {"content-type": "text/html"}), selector)
            assert found.page is not None
            assert len(found.page.lines) <= 20_000
        return await read_title(parser), time.monotonic() - began_s


async def test_documents_after_hostile_selectors_are_parsed() -> None:
    results = await asyncio.gather(*(parse_with(*evil) for evil in EVIL_SELECTORS.values()))
    assert {title for title, _ in results} == {"Title a"}
    assert max(seconds for _, seconds in results) < parser_client.PARSE_TIMEOUT_S + 8


async def test_a_selector_that_needs_too_much_memory_is_not_called_invalid(parser: ParserClient) -> None:
    with pytest.raises(ParseKilled, match="memory"):
        await parser.parse_document(Document(*LARGE_TEXT), "xpath=concat(" + ",".join(["/"] * 80) + ")")


@pytest.mark.parametrize(
    "selector", ["xpath=document('/etc/passwd')", "xpath=//x:include", "xpath=unparsed-text('/x')"]
)
async def test_a_selector_cannot_read_files(parser: ParserClient, selector: str) -> None:
    with pytest.raises(EmptyBody, match="XPath"):
        await parser.parse_document(Document(page(), URL, {"content-type": "text/html"}), selector)


async def test_a_process_is_reused_although_its_parent_is_large(parser: ParserClient) -> None:
    ballast = bytearray(b"x" * 200_000_000)
    await read_title(parser)
    (child,) = children()
    reader = reader_of(child)
    await read_title(parser)
    assert children() == [child]
    assert reader_of(child) == reader
    assert len(ballast) == 200_000_000


def kills() -> float:
    return REGISTRY.get_sample_value("coronet_parse_kills_total") or 0.0


async def test_an_idle_process_is_stopped_and_another_one_replaces_it(
    parser: ParserClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parser_client, "_IDLE_TIMEOUT_S", 0.05)
    await read_title(parser)
    await until_so(lambda: not children(), "the idle process has ended")
    assert await read_title(parser) == "Title a"


async def test_a_stopped_process_is_killed_after_the_timeout(parser: ParserClient) -> None:
    before = kills()
    await read_title(parser)
    os.kill(reader_of(*children()), signal.SIGSTOP)
    with pytest.raises(ParseKilled, match="longer"):
        await parser.detect_changes(DetectChanges((Document(GOOD, URL, {}),), b"", URL, "feed", 0.0), timeout_s=0.3)
    assert await read_title(parser) == "Title a"
    assert kills() == before + 1


async def test_cancellation_kills_the_process(parser: ParserClient) -> None:
    await read_title(parser)
    child = reader_of(*children())
    idle = cpu_ticks(child)
    reading = asyncio.ensure_future(parser.parse_document(Document(HOSTILE["100,000 attributes"], URL, {})))
    await until_so(lambda: cpu_ticks(child) > idle + 20, "the child works on it")
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await until_so(lambda: state(child) == "", "the child ends")
    assert await read_title(parser) == "Title a"


async def test_a_document_that_kills_its_reader_leaves_the_parser_process(parser: ParserClient) -> None:
    await read_title(parser)
    (child,) = children()
    reader, before = reader_of(child), kills()
    costly = DetectChanges((Document(rss_with(b"<b>" * 20_000), URL, {}),), b"", URL, "feed", 0.0, cpu_s=0.05)
    with pytest.raises(ParseKilled, match="more processor time"):
        await parser.detect_changes(costly)
    assert parser.cpu_s >= 0.05 - 1 / os.sysconf("SC_CLK_TCK")  # the kernel's timer counts in ticks
    assert await read_title(parser) == "Title a"
    assert children() == [child]
    assert reader_of(child) != reader
    assert kills() == before + 1


async def test_a_reader_that_is_killed_between_two_documents_is_replaced(parser: ParserClient) -> None:
    await read_title(parser)
    (child,) = children()
    reader = reader_of(child)
    await until_so(lambda: state(reader) == "S", "the reader waits")
    os.kill(reader, signal.SIGKILL)
    await until_so(lambda: reader not in children(child), "the reader is gone")
    assert await read_title(parser) == "Title a"
    assert children() == [child]


async def test_repeatedly_killed_processes_leave_no_resources(parser: ParserClient) -> None:
    await read_title(parser)
    before = descriptors()
    for _ in range(15):
        reading = asyncio.ensure_future(read_title(parser, HOSTILE["100,000 attributes"]))
        await until_so(children, "a child works on it")
        os.kill(children()[0], signal.SIGKILL)
        with pytest.raises(ParseKilled):
            await reading
    assert await read_title(parser) == "Title a"
    assert len(children()) == 1
    assert descriptors() == before


async def test_a_parser_has_one_process_until_it_is_closed() -> None:
    async with ParserClient() as parser:
        assert children() == []
        titles = await asyncio.gather(*(read_title(parser) for _ in range(8)))
        assert len(children()) == 1
    assert set(titles) == {"Title a"}
    assert children() == []


async def test_a_killed_parent_leaves_no_process() -> None:
    program = (
        "import asyncio, sys\n"
        "from service.feeds.sandbox.parser_client import ParserClient\n"
        "from service.feeds.sandbox.protocol import Document\n"
        "async def main():\n"
        "    async with ParserClient() as parser:\n"
        f"        await parser.parse_document(Document({GOOD!r}, {URL!r}, {{}}))\n"
        "        print(parser._process.pid, 'feedparser' in sys.modules, flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.curdir}
    )
    try:
        assert parent.stdout is not None
        pid, loaded = (await parent.stdout.readline()).split()
    finally:
        parent.kill()
        await parent.wait()
    assert loaded == b"False"
    await until_so(lambda: state(int(pid)) == "", "the child ends")


async def test_a_page_that_exceeds_the_memory_limit_is_not_truncated(parser: ParserClient) -> None:
    with pytest.raises(ParseKilled):
        await parser.parse_document(Document(b"<html>" + b"<p>x" * 1_200_000, URL, {"content-type": "text/html"}))
