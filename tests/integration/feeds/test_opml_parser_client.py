"""OPML files are parsed one at a time, each in a process of its own, never by the program itself."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from service.errors import ParserBusy, TooLarge, UserError
from service.feeds.opml_writer import MAX_OPML_BYTES, OpmlSubscription, write
from service.feeds.sandbox.parser_client import OpmlParserClient
from tests.integration.feeds.test_parser_client import children
from tests.support.waiting import until_so

FEEDS = (OpmlSubscription("https://example.org/a", "A"), OpmlSubscription("https://example.org/b", "B", folder="News"))
LIST = write("Mine", FEEDS)
SLOW = b"<opml><body>" + b"&" * (MAX_OPML_BYTES - 12)
THREE_LARGE_LISTS = """
import asyncio, sys
from pathlib import Path
from service.feeds.opml_writer import MAX_OPML_BYTES
from service.feeds.sandbox.parser_client import OpmlParserClient

async def load():
    return b"<opml>" + b"\\n" * (MAX_OPML_BYTES - 6)

def peak_mb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024

async def main():
    reader, before_mb = OpmlParserClient(), peak_mb()
    await asyncio.gather(*(reader.read(load) for _ in range(3)))
    print(peak_mb() - before_mb, "lxml" in sys.modules)

asyncio.run(main())
"""


async def load() -> bytes:
    return LIST


async def load_slow() -> bytes:
    return SLOW


async def test_a_file_is_parsed_and_its_process_exits() -> None:
    outline = await OpmlParserClient().read(load)
    assert outline.feeds == FEEDS
    assert children() == []


async def test_files_are_parsed_one_at_a_time() -> None:
    reader, most = OpmlParserClient(), 0
    reading = asyncio.gather(*(reader.read(load) for _ in range(4)))
    while not reading.done():
        most = max(most, len(children()))
        await asyncio.sleep(0.005)
    assert [outline.feeds for outline in await reading] == [FEEDS] * 4
    assert most == 1


async def test_files_beyond_the_limit_are_refused_before_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.feeds.sandbox.parser_client._MAX_PENDING_FILES", 2)
    reader, loaded = OpmlParserClient(), asyncio.Event()

    async def load_late() -> bytes:
        await loaded.wait()
        return LIST

    held = [asyncio.create_task(reader.read(load_late)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(ParserBusy):
        await reader.read(lambda: pytest.fail("it was loaded"))
    loaded.set()
    assert [outline.feeds for outline in await asyncio.gather(*held)] == [FEEDS] * 2
    assert (await reader.read(load)).feeds == FEEDS


async def test_a_file_that_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.feeds.sandbox.parser_client._MAX_WAIT_S", 0.01)
    reader = OpmlParserClient()
    slow = asyncio.create_task(reader.read(load_slow))
    await until_so(children, "the first is read")
    with pytest.raises(ParserBusy):
        await reader.read(load)
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    assert children() == []
    assert (await reader.read(load)).feeds == FEEDS


async def test_a_file_that_kills_its_process_is_refused_and_the_next_is_parsed() -> None:
    reader = OpmlParserClient()
    slow = asyncio.create_task(reader.read(load_slow))
    await until_so(children, "it is read")
    os.kill(children()[0], signal.SIGKILL)
    with pytest.raises(UserError, match="time or memory"):
        await slow
    assert (await reader.read(load)).feeds == FEEDS


async def test_errors_of_loading_and_parsing_are_raised() -> None:
    async def fail() -> bytes:
        raise TooLarge("The file is too large.")

    async def load_page() -> bytes:
        return b"<html/>"

    reader = OpmlParserClient()
    with pytest.raises(TooLarge):
        await reader.read(fail)
    with pytest.raises(UserError, match="not OPML"):
        await reader.read(load_page)


def test_three_large_files_at_once_need_little_memory() -> None:
    output = subprocess.run((sys.executable, "-c", THREE_LARGE_LISTS), stdout=subprocess.PIPE, check=True).stdout
    grown_mb, has_lxml = output.split()
    assert int(grown_mb) < 60
    assert has_lxml == b"False"


def test_programs_do_not_load_parsers() -> None:
    program = (
        "import sys, workers.main, bots.main, service.console.main\n"
        "print(sorted({'lxml', 'feedparser'} & sys.modules.keys()))"
    )
    output = subprocess.run((sys.executable, "-c", program), stdout=subprocess.PIPE, check=True).stdout
    assert output.strip() == b"[]"
