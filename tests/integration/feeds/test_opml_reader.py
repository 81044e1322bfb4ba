"""Lists of feeds are read one at a time, in a process that ends with the list, and never by the program itself."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from service.errors import ParserBusy, TooLarge, UserError
from service.feeds.opml import MAX_OPML_BYTES, OpmlSubscription, write
from service.feeds.sandbox import opml_reader
from service.feeds.sandbox.opml_reader import OpmlReader
from tests.integration.feeds.test_sandbox import children
from tests.support.waiting import until_so

FEEDS = (OpmlSubscription("https://example.org/a", "A"), OpmlSubscription("https://example.org/b", "B", ("News",)))
LIST = write("Mine", FEEDS)
SLOW = b"<opml><body>" + b"&" * (MAX_OPML_BYTES - 12)
THREE_LARGE_LISTS = """
import asyncio, sys
from pathlib import Path
from service.feeds.opml import MAX_OPML_BYTES
from service.feeds.sandbox.opml_reader import OpmlReader

async def load():
    return b"<opml>" + b"\\n" * (MAX_OPML_BYTES - 6)

def peak_mb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024

async def main():
    reader, before_mb = OpmlReader(), peak_mb()
    await asyncio.gather(*(reader.read(load) for _ in range(3)))
    print(peak_mb() - before_mb, "lxml" in sys.modules)

asyncio.run(main())
"""


async def load() -> bytes:
    return LIST


async def load_slow() -> bytes:
    return SLOW


async def test_a_list_is_read_and_its_process_ends() -> None:
    outline = await OpmlReader().read(load)
    assert outline.feeds == FEEDS
    assert children() == []


async def test_lists_are_read_one_at_a_time() -> None:
    reader, most = OpmlReader(), 0
    reading = asyncio.gather(*(reader.read(load) for _ in range(4)))
    while not reading.done():
        most = max(most, len(children()))
        await asyncio.sleep(0.005)
    assert [outline.feeds for outline in await reading] == [FEEDS] * 4
    assert most == 1


async def test_more_lists_than_are_held_are_refused_before_they_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opml_reader, "_MAX_PENDING_FILES", 2)
    reader, loaded = OpmlReader(), asyncio.Event()

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


async def test_a_list_that_waits_too_long_for_its_turn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opml_reader, "_MAX_WAIT_S", 0.01)
    reader = OpmlReader()
    slow = asyncio.create_task(reader.read(load_slow))
    await until_so(children, "the first is read")
    with pytest.raises(ParserBusy):
        await reader.read(load)
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    assert children() == []
    assert (await reader.read(load)).feeds == FEEDS


async def test_a_list_whose_process_dies_is_refused_and_the_next_is_read() -> None:
    reader = OpmlReader()
    slow = asyncio.create_task(reader.read(load_slow))
    await until_so(children, "it is read")
    os.kill(children()[0], signal.SIGKILL)
    with pytest.raises(UserError, match="time or memory"):
        await slow
    assert (await reader.read(load)).feeds == FEEDS


async def test_what_keeps_a_list_from_being_loaded_or_read_is_told() -> None:
    async def fail() -> bytes:
        raise TooLarge("The file is too large.")

    async def load_page() -> bytes:
        return b"<html/>"

    reader = OpmlReader()
    with pytest.raises(TooLarge):
        await reader.read(fail)
    with pytest.raises(UserError, match="not OPML"):
        await reader.read(load_page)


def test_three_large_lists_at_once_cost_the_program_little() -> None:
    output = subprocess.run((sys.executable, "-c", THREE_LARGE_LISTS), stdout=subprocess.PIPE, check=True).stdout
    grown_mb, has_lxml = output.split()
    assert int(grown_mb) < 60
    assert has_lxml == b"False"


def test_the_programs_load_no_parser_of_documents() -> None:
    program = (
        "import sys, workers.main, bots.main, service.console.main\n"
        "print(sorted({'lxml', 'feedparser'} & sys.modules.keys()))"
    )
    output = subprocess.run((sys.executable, "-c", program), stdout=subprocess.PIPE, check=True).stdout
    assert output.strip() == b"[]"
