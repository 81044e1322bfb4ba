"""Forms that are sent to hubs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.errors import AddressRefused, BadRedirect, BadStatus, LimitReached, Unreachable
from service.net.fetcher import Fetcher
from tests.support.raw_http import answering, ok, raw_publisher, redirect

FORM = {"hub.mode": "subscribe", "hub.topic": "https://example.org/feed?a=b&c"}
ENCODED = b"hub.mode=subscribe&hub.topic=https%3A%2F%2Fexample.org%2Ffeed%3Fa%3Db%26c"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


async def test_a_form_is_sent_and_the_status_returned(fetcher: Fetcher) -> None:
    async with raw_publisher(answering(ACCEPTED)) as hub:
        assert await fetcher.post(hub.url(), FORM) == 202
    assert hub.requests[0].startswith("POST /feed HTTP/1.1\r\n")
    assert "Content-Type: application/x-www-form-urlencoded\r\n" in hub.requests[0]
    assert f"Content-Length: {len(ENCODED)}\r\n" in hub.requests[0]


@asynccontextmanager
async def recording_hub(bodies: list[bytes]) -> AsyncIterator[str]:
    """Run a hub that records the forms it receives; yield its URL."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        bodies.append(await reader.readexactly(len(ENCODED)))
        writer.write(ACCEPTED)
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.mark.parametrize("status", [307, 308])
async def test_a_method_preserving_redirect_is_followed_with_the_form(fetcher: Fetcher, status: int) -> None:
    bodies: list[bytes] = []
    async with raw_publisher(answering()) as first, recording_hub(bodies) as second:
        first.handler = answering(redirect(second, status))
        assert await fetcher.post(first.url(), FORM) == 202
    assert bodies == [ENCODED]


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_other_redirects_of_a_form_are_not_followed(fetcher: Fetcher, status: int) -> None:
    async with raw_publisher(answering(ACCEPTED)) as second, raw_publisher(answering()) as first:
        first.handler = answering(redirect(second.url(), status))
        with pytest.raises(BadRedirect, match=f"redirects a form with status {status}"):
            await fetcher.post(first.url(), FORM)
        assert second.connections == 0


async def test_a_redirect_to_another_host_needs_permission(fetcher: Fetcher) -> None:
    async def refuse(host: str) -> None:
        raise LimitReached(host)

    async with raw_publisher(answering()) as first:
        first.handler = answering(redirect("http://localhost:1/", 307))
        with pytest.raises(LimitReached, match="localhost"):
            await fetcher.post(first.url(), FORM, refuse)


async def test_a_redirect_loop_of_a_hub_is_ended(fetcher: Fetcher) -> None:
    async with raw_publisher(answering(redirect("/feed", 307), then_close=False)) as hub:
        with pytest.raises(BadRedirect, match="more than 5 times"):
            await fetcher.post(hub.url(), FORM)
    assert len(hub.requests) == 6


async def test_an_error_quotes_the_hubs_response_sanitized_and_truncated(fetcher: Fetcher) -> None:
    words = "Your callback\r\n\x1b[31m \u202eis not reachable. ".encode() + b"x" * 10_000
    async with raw_publisher(answering(ok(words).replace(b"200 OK", b"400 Bad Request"))) as hub:
        with pytest.raises(BadStatus) as caught:
            await fetcher.post(hub.url(), FORM)
    text = str(caught.value)
    assert text.startswith("127.0.0.1 answered 400 (Your callback [31m is not reachable. xxx")
    assert (caught.value.status, len(text) < 300) == (400, True)


async def test_an_error_without_text_has_the_status(fetcher: Fetcher) -> None:
    answer = b"HTTP/1.1 503 Busy\r\nRetry-After: 60\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nxxx"
    async with raw_publisher(answering(answer)) as hub:
        with pytest.raises(BadStatus, match=r"answered 503 \(Busy\)") as caught:
            await fetcher.post(hub.url(), FORM)
    assert caught.value.retry_after_s == 60


async def test_an_endless_response_body_of_a_hub_is_not_read(hasty_fetcher: Fetcher) -> None:
    async with raw_publisher(answering(b"HTTP/1.1 202 Accepted\r\n\r\n", pause_s=60)) as hub:
        assert await hasty_fetcher.post(hub.url(), FORM) == 202


async def test_an_endless_error_response_is_read_partly(fetcher: Fetcher) -> None:
    refusal = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    async with raw_publisher(answering(refusal, *[b"x" * 1024] * 100, pause_s=0.01)) as hub:
        with pytest.raises(BadStatus, match="answered 400 \\(xxx"):
            await fetcher.post(hub.url(), FORM)


async def test_a_silent_hub_times_out(hasty_fetcher: Fetcher) -> None:
    async with raw_publisher(answering(b"HTTP/1.1 202", pause_s=60)) as hub:
        with pytest.raises(Unreachable, match=r"longer than 0\.5 s"):
            await hasty_fetcher.post(hub.url(), FORM)


async def test_the_guard_applies_to_hubs(strict_fetcher: Fetcher) -> None:
    async with raw_publisher(answering(ACCEPTED)) as hub:
        with pytest.raises(AddressRefused, match="not a public address"):
            await strict_fetcher.post(hub.url(), FORM)
        assert hub.connections == 0
