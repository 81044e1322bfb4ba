"""Publishers that send anything: an error of our tree, in words, and the next fetch is fine."""

import asyncio
import gzip
from collections.abc import Callable
from pathlib import Path

import brotli  # type: ignore[import-untyped]  # it ships no types
import pytest

from service.errors import BadHttp, BadRedirect, FetchError, TooLarge, Unreachable
from service.net.fetch import MAX_BODY_BYTES, Fetcher
from tests.support.raw_http import Handler, answering, ok, raw_publisher, redirect
from tests.support.waiting import until_so

OK = b"HTTP/1.1 200 OK\r\n"
BOMB = bytes(64 * 1024 * 1024)

BAD: dict[str, tuple[type[FetchError], Callable[[], Handler]]] = {
    "gzip bomb": (TooLarge, lambda: answering(ok(gzip.compress(BOMB, 1), "Content-Encoding: gzip"))),
    "brotli bomb": (TooLarge, lambda: answering(ok(brotli.compress(BOMB, quality=1), "Content-Encoding: br"))),
    "gzip in gzip": (BadHttp, lambda: answering(ok(b"x", "Content-Encoding: gzip, gzip"))),
    "gzip twice": (BadHttp, lambda: answering(ok(b"x", "Content-Encoding: gzip", "Content-Encoding: gzip"))),
    "unknown encoding": (BadHttp, lambda: answering(ok(b"x", "Content-Encoding: rot13"))),
    "false gzip": (BadHttp, lambda: answering(ok(b"<rss/>", "Content-Encoding: gzip"))),
    "large by its own word": (TooLarge, lambda: answering(OK + b"Content-Length: 99999999\r\n\r\nx", then_close=False)),
    "large without a word": (TooLarge, lambda: answering(OK + b"\r\n", bytes(MAX_BODY_BYTES + 1))),
    "long header line": (TooLarge, lambda: answering(OK + b"X: " + b"x" * 100_000 + b"\r\n\r\n")),
    "many headers": (TooLarge, lambda: answering(OK + b"X: y\r\n" * 100_000 + b"\r\n")),
    "headers of 100 kB": (TooLarge, lambda: answering(OK + (b"X: " + b"x" * 9_000 + b"\r\n") * 11 + b"\r\n")),
    "long status line": (FetchError, lambda: answering(b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n")),
    "Content-Length too long": (BadHttp, lambda: answering(OK + b"Content-Length: 100\r\n\r\nshort")),
    "Content-Length twice": (BadHttp, lambda: answering(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx")),
    "Content-Length negative": (BadHttp, lambda: answering(OK + b"Content-Length: -1\r\n\r\nxx")),
    "broken chunk": (BadHttp, lambda: answering(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n")),
    "chunks cut off": (BadHttp, lambda: answering(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nxx")),
    "HTTP/0.9": (BadHttp, lambda: answering(b"<rss/>")),
    "another protocol": (BadHttp, lambda: answering(b"SSH-2.0-OpenSSH_9.2\r\n")),
    "silence": (Unreachable, answering),
    "304 to an unconditional request": (BadHttp, lambda: answering(b"HTTP/1.1 304 Not Modified\r\n\r\n")),
    "302 without Location": (BadRedirect, lambda: answering(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n")),
    "a redirect to itself": (BadRedirect, lambda: answering(redirect("/feed"), then_close=False)),
    "odd bytes in Location": (BadRedirect, lambda: answering(redirect("http://\xff\xfe/\x01"))),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_answer_is_an_error_in_words(fetcher: Fetcher, what: str) -> None:
    kind, make = BAD[what]
    async with raw_publisher(make()) as publisher, raw_publisher(answering(ok(b"fine"))) as healthy:
        with pytest.raises(kind, match=r"\w{3}"):
            await fetcher.fetch(publisher.url())
        assert (await fetcher.fetch(healthy.url())).body == b"fine"


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 O", OK, OK + b"\r\n"], ids=["status line", "headers", "body"])
async def test_a_publisher_that_drips_is_given_up(hasty_fetcher: Fetcher, start: bytes) -> None:
    async with raw_publisher(answering(start, *[b"H"] * 1000, pause_s=0.02)) as publisher:
        with pytest.raises(Unreachable, match=r"longer than 0\.5 s"):
            await hasty_fetcher.fetch(publisher.url())


async def test_the_time_covers_all_redirects_together(hasty_fetcher: Fetcher) -> None:
    async with raw_publisher(answering(b"", redirect("/feed"), pause_s=0.2, then_close=False)) as publisher:
        with pytest.raises(Unreachable, match=r"longer than 0\.5 s"):
            await hasty_fetcher.fetch(publisher.url())
        assert len(publisher.requests) < 5


async def test_nobody_listening_is_said_so(fetcher: Fetcher) -> None:
    async with raw_publisher(answering()) as publisher:
        url = publisher.url()
    with pytest.raises(Unreachable, match="cannot be reached: connection refused"):
        await fetcher.fetch(url)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_bad_answers_and_cancelled_fetches_leave_no_descriptor(fetcher: Fetcher) -> None:
    before = descriptors()
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
    await until_so(lambda: descriptors() <= before, "every descriptor is closed")
