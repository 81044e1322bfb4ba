"""Invalid and hostile responses: each raises one of Coronet's errors, and the next fetch succeeds."""

import asyncio
from pathlib import Path

import pytest

from service.errors import BadHttp, BadRedirect, FetchError, TooLarge, Unreachable
from service.net.fetcher import Fetcher
from tests.support.hostile_publisher import BAD_ANSWERS, DRIPS, ENDLESS, OK, endless
from tests.support.raw_http import answering, ok, raw_publisher, redirect
from tests.support.waiting import until_so

MOST_MEMORY = 100 * 1024 * 1024


def memory_bytes(name: str, *, reset_peak: bool = False) -> int:
    """Return one of this process's memory sizes (proc(5)); VmHWM is the peak of VmRSS."""
    if reset_peak:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


async def assert_no_connection_left(fetcher: Fetcher) -> None:
    connector = fetcher._session.connector
    assert connector is not None
    await until_so(lambda: not connector._acquired, "no connection is in use")
    await until_so(lambda: asyncio.all_tasks() == {asyncio.current_task()}, "no task is left")


KINDS: dict[str, type[FetchError]] = {
    "gzip bomb": TooLarge,
    "brotli bomb": TooLarge,
    "zstd bomb": TooLarge,
    "gzip in gzip": BadHttp,
    "gzip twice": BadHttp,
    "unknown encoding": BadHttp,
    "false gzip": BadHttp,
    "large by its own word": TooLarge,
    "large without a word": TooLarge,
    "endless": TooLarge,
    "endless chunks": TooLarge,
    "endless small chunks": TooLarge,
    "endless packed": TooLarge,
    "long header line": TooLarge,
    "many headers": TooLarge,
    "one header of 20 MB": TooLarge,
    "headers of 20 MB": TooLarge,
    "endless header": TooLarge,
    "endless headers": TooLarge,
    "endless status line": FetchError,
    "long status line": FetchError,
    "Content-Length too long": BadHttp,
    "Content-Length twice": BadHttp,
    "Content-Length negative": BadHttp,
    "broken chunk": BadHttp,
    "chunks cut off": BadHttp,
    "HTTP/0.9": BadHttp,
    "another protocol": BadHttp,
    "silence": Unreachable,
    "304 without a validator": BadHttp,
    "a change that nobody asked for": BadHttp,
    "302 without Location": BadRedirect,
    "a redirect to itself": BadRedirect,
    "odd bytes in Location": BadRedirect,
}


@pytest.mark.parametrize("what", BAD_ANSWERS)
async def test_an_invalid_response_raises_an_error_within_the_memory_limit(fetcher: Fetcher, what: str) -> None:
    async with raw_publisher(BAD_ANSWERS[what]()) as publisher, raw_publisher(answering(ok(b"fine"))) as healthy:
        before = memory_bytes("VmRSS", reset_peak=True)
        with pytest.raises(KINDS[what], match=r"\w{3}"):
            await fetcher.fetch(publisher.url())
        assert memory_bytes("VmHWM") - before < MOST_MEMORY
        assert (await fetcher.fetch(healthy.url())).body == b"fine"
    await assert_no_connection_left(fetcher)


async def test_excess_bytes_are_not_read_as_the_next_response(fetcher: Fetcher) -> None:
    smuggled = ok(b"fine") + ok(b"smuggled")
    async with raw_publisher(answering(smuggled, then_close=False)) as publisher:
        for _ in range(3):
            assert (await fetcher.fetch(publisher.url())).body == b"fine"
    await assert_no_connection_left(fetcher)


@pytest.mark.parametrize("start", DRIPS.values(), ids=DRIPS)
async def test_a_slow_response_times_out(hasty_fetcher: Fetcher, start: bytes) -> None:
    async with raw_publisher(answering(start, *[b"1"] * 1000, pause_s=0.04)) as publisher:
        with pytest.raises(Unreachable, match=r"longer than 0\.5 s"):
            await hasty_fetcher.fetch(publisher.url())
    await assert_no_connection_left(hasty_fetcher)


@pytest.mark.parametrize("what", ENDLESS)
async def test_endless_headers_and_trailers_are_aborted(hasty_fetcher: Fetcher, what: str) -> None:
    async with raw_publisher(endless(*ENDLESS[what])) as publisher:
        before = memory_bytes("VmRSS", reset_peak=True)
        with pytest.raises(FetchError, match=r"\w{3}"):
            await hasty_fetcher.fetch(publisher.url())
        assert memory_bytes("VmHWM") - before < MOST_MEMORY
    await assert_no_connection_left(hasty_fetcher)


async def test_a_flooding_publisher_is_disconnected_before_the_timeout(fetcher: Fetcher) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: " + b"x" * 8_000 + b"\r\n\r\n"
    async with raw_publisher(endless(b"", hints * 10)) as publisher:
        with pytest.raises(TooLarge, match="more than one answer can hold"):
            await fetcher.fetch(publisher.url())
        assert publisher.connections == 1
    await assert_no_connection_left(fetcher)


async def test_the_timeout_includes_all_redirects(hasty_fetcher: Fetcher) -> None:
    async with raw_publisher(answering(b"", redirect("/feed"), pause_s=0.2, then_close=False)) as publisher:
        with pytest.raises(Unreachable, match=r"longer than 0\.5 s"):
            await hasty_fetcher.fetch(publisher.url())
        assert len(publisher.requests) < 5


async def test_a_refused_connection_is_reported(fetcher: Fetcher) -> None:
    async with raw_publisher(answering()) as publisher:
        url = publisher.url()
    with pytest.raises(Unreachable, match="cannot be reached: connection refused"):
        await fetcher.fetch(url)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_failed_and_cancelled_fetches_leave_no_descriptor(fetcher: Fetcher) -> None:
    before = open_descriptors()
    async with (
        raw_publisher(answering(OK + b"Content-Length: 100\r\n\r\nshort")) as liar,
        raw_publisher(answering(OK, pause_s=60)) as sleeper,
    ):
        for _ in range(10):
            with pytest.raises(BadHttp):
                await fetcher.fetch(liar.url())
        fetches = [asyncio.ensure_future(fetcher.fetch(sleeper.url())) for _ in range(4)]
        await until_so(lambda: len(sleeper.requests) == len(fetches), "every fetch waits for its answer")
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)
    await until_so(lambda: open_descriptors() <= before, "every descriptor is closed")
