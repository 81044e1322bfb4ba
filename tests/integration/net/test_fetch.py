"""Fetching from publishers that behave."""

import asyncio
import gzip
import hashlib
from email.utils import formatdate
from time import time

import pytest

from service.errors import BadStatus
from service.model import Validators
from service.net.fetch import Fetcher
from tests.support.raw_http import answering, ok, raw_publisher, redirect

BODY = b"<rss/>"
SHA256 = hashlib.sha256(BODY).hexdigest()
NOT_MODIFIED = b'HTTP/1.1 304 Not Modified\r\nETag: "b"\r\n\r\n'


async def test_the_first_fetch_returns_the_body_and_its_validators(fetcher: Fetcher) -> None:
    answer = ok(BODY, 'ETag: "a"', "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT", "Content-Type: text/xml")
    async with raw_publisher(answering(answer)) as publisher:
        fetched = await fetcher.fetch(publisher.url(), subscribers=7)
    assert (fetched.status, fetched.url, fetched.body) == (200, publisher.url(), BODY)
    assert fetched.validators == Validators('"a"', "Mon, 01 Jan 2024 00:00:00 GMT", SHA256)
    assert fetched.headers["content-type"] == "text/xml"
    assert fetched.private
    (head,) = publisher.requests
    assert "User-Agent: Coronet/0.1.0 (+https://feeds.example/about; 7 subscribers)\r\n" in head
    assert "Accept-Encoding: gzip, deflate, br, zstd\r\n" in head
    assert "If-None-Match" not in head


async def test_the_next_fetch_is_conditional_and_304_renews_the_validators(fetcher: Fetcher) -> None:
    known = Validators('"a"', "Mon, 01 Jan 2024 00:00:00 GMT", SHA256)
    async with raw_publisher(answering(NOT_MODIFIED)) as publisher:
        fetched = await fetcher.fetch(publisher.url(), known, subscribers=1)
    assert (fetched.status, fetched.body) == (304, None)
    assert fetched.validators == Validators('"b"', known.last_modified, SHA256)
    assert 'If-None-Match: "a"\r\n' in publisher.requests[0]
    assert "If-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT\r\n" in publisher.requests[0]
    assert "; 1 subscriber)" in publisher.requests[0]


async def test_equal_bytes_are_not_a_body_even_if_the_etag_changed(fetcher: Fetcher) -> None:
    async with raw_publisher(answering(ok(BODY, 'ETag: "new"'))) as publisher:
        fetched = await fetcher.fetch(publisher.url(), Validators('"old"', "", SHA256))
    assert (fetched.status, fetched.body, fetched.validators.etag) == (200, None, '"new"')


async def test_a_packed_body_is_unpacked(fetcher: Fetcher) -> None:
    async with raw_publisher(answering(ok(gzip.compress(BODY), "Content-Encoding: gzip"))) as publisher:
        assert (await fetcher.fetch(publisher.url())).body == BODY


async def test_a_chunked_body_and_one_that_ends_with_the_connection_arrive_whole(fetcher: Fetcher) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n<rs\r\n3\r\ns/>\r\n0\r\n\r\n"
    for answer in (chunked, b"HTTP/1.1 200 OK\r\n\r\n" + BODY):
        async with raw_publisher(answering(answer)) as publisher:
            assert (await fetcher.fetch(publisher.url())).body == BODY


async def test_one_connection_serves_many_fetches_without_cookies(fetcher: Fetcher) -> None:
    answer = answering(ok(BODY, "Set-Cookie: id=1"), then_close=False)
    async with raw_publisher(answer) as publisher:
        for _ in range(5):
            await fetcher.fetch(publisher.url())
        assert publisher.connections == 1
        assert not any("Cookie" in head for head in publisher.requests)


async def test_a_temporary_redirect_is_followed_and_changes_nothing(fetcher: Fetcher) -> None:
    async with (
        raw_publisher(answering(ok(BODY))) as target,
        raw_publisher(answering(redirect(target.url("/there?utm_source=x#part"), 307))) as publisher,
    ):
        fetched = await fetcher.fetch(publisher.url())
    assert (fetched.url, fetched.permanent_url) == (target.url("/there?utm_source=x"), None)


@pytest.mark.parametrize(("second", "moved_to"), [(308, "/c"), (302, "/b")])
async def test_a_channel_has_moved_as_far_as_the_permanent_redirects_lead(
    fetcher: Fetcher, second: int, moved_to: str
) -> None:
    async with raw_publisher(answering()) as publisher:
        answers = {"/a": redirect("/b", 301), "/b": redirect("c", second), "/c": ok(BODY)}

        async def answer(head: str, writer: asyncio.StreamWriter) -> None:
            writer.write(answers[head.split()[1]])
            await writer.drain()

        publisher.handler = answer
        fetched = await fetcher.fetch(publisher.url("/a"))
    assert (fetched.url, fetched.permanent_url) == (publisher.url("/c"), publisher.url(moved_to))


@pytest.mark.parametrize("status", [204, 206, 400, 403, 404, 410, 429, 500, 503])
async def test_a_status_without_content_is_an_error_that_names_it(fetcher: Fetcher, status: int) -> None:
    async with raw_publisher(answering(f"HTTP/1.1 {status} Sorry\r\nRetry-After: 120\r\n\r\n".encode())) as publisher:
        with pytest.raises(BadStatus, match=rf"answered {status} \(Sorry\)") as caught:
            await fetcher.fetch(publisher.url())
    assert (caught.value.status, caught.value.retry_after_s) == (status, 120.0)


@pytest.mark.parametrize(
    ("value", "retry_after_s"),
    [("Mon, 01 Jan 2001 00:00:00 GMT", 0.0), ("9" * 30, 604800.0)],
    ids=["long ago", "absurd"],
)
async def test_a_retry_after_is_kept_within_limits(fetcher: Fetcher, value: str, retry_after_s: float) -> None:
    async with raw_publisher(answering(f"HTTP/1.1 503 Busy\r\nRetry-After: {value}\r\n\r\n".encode())) as publisher:
        with pytest.raises(BadStatus) as caught:
            await fetcher.fetch(publisher.url())
    assert caught.value.retry_after_s == retry_after_s


async def test_a_retry_after_date_is_counted_from_now(fetcher: Fetcher) -> None:
    asked_s = time()
    value = formatdate(asked_s + 3600, usegmt=True)
    async with raw_publisher(answering(f"HTTP/1.1 503 Busy\r\nRetry-After: {value}\r\n\r\n".encode())) as publisher:
        with pytest.raises(BadStatus) as caught:
            await fetcher.fetch(publisher.url())
    assert caught.value.retry_after_s is not None
    assert asked_s + 3599 <= time() + caught.value.retry_after_s
    assert caught.value.retry_after_s <= 3600


@pytest.mark.parametrize("value", ["soon", "-5", "", "\xb2"])
async def test_a_retry_after_that_means_nothing_is_absent(fetcher: Fetcher, value: str) -> None:
    async with raw_publisher(answering(f"HTTP/1.1 503 Busy\r\nRetry-After: {value}\r\n\r\n".encode())) as publisher:
        with pytest.raises(BadStatus) as caught:
            await fetcher.fetch(publisher.url())
    assert caught.value.retry_after_s is None


async def test_proxies_from_the_environment_are_not_used(fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_publisher(answering(ok(BODY))) as publisher, raw_publisher(answering(ok(b"proxied"))) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url(""))
        monkeypatch.setenv("http_proxy", proxy.url(""))
        assert (await fetcher.fetch(publisher.url())).body == BODY
        assert proxy.connections == 0
