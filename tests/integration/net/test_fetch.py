"""Fetches from publishers that follow the specifications."""

import asyncio
import gzip
import hashlib
from email.utils import formatdate
from time import time

import pytest

from service.errors import BadHttp, BadStatus, FetchError
from service.model import Validators
from service.net.fetcher import Fetcher
from service.net.link_headers import HubLinks
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


async def test_an_equal_body_is_recognized_although_the_etag_changed(fetcher: Fetcher) -> None:
    async with raw_publisher(answering(ok(BODY, 'ETag: "new"'))) as publisher:
        fetched = await fetcher.fetch(publisher.url(), Validators('"old"', "", SHA256))
    assert (fetched.status, fetched.body, fetched.validators.etag) == (200, None, '"new"')


async def test_a_hash_alone_is_unconditional_but_recognizes_the_body(fetcher: Fetcher) -> None:
    """The daily check against wrong validators is unconditional, and needs no parsing."""
    async with raw_publisher(answering(ok(BODY, 'ETag: "a"'))) as publisher:
        fetched = await fetcher.fetch(publisher.url(), Validators(body_sha256=SHA256))
    assert (fetched.body, fetched.validators) == (None, Validators('"a"', "", SHA256))
    assert not any(word in publisher.requests[0] for word in ("If-None-Match", "If-Modified-Since", "A-IM"))


async def test_a_304_to_an_unconditional_request_is_an_error(fetcher: Fetcher) -> None:
    async with raw_publisher(answering(NOT_MODIFIED)) as publisher:
        with pytest.raises(BadHttp, match="named nothing to compare with"):
            await fetcher.fetch(publisher.url(), Validators(body_sha256=SHA256))


async def test_an_equal_body_is_recognized_in_any_coding_and_from_any_host(
    fetcher: Fetcher,
) -> None:
    packed = ok(gzip.compress(BODY, mtime=0), "Content-Encoding: gzip")
    for answer in (packed, ok(BODY), packed):
        async with raw_publisher(answering(answer)) as publisher:
            assert (await fetcher.fetch(publisher.url())).body == BODY
            assert (await fetcher.fetch(publisher.url(), Validators(body_sha256=SHA256))).body is None
            assert (await fetcher.fetch(publisher.url(), Validators(body_sha256="0" * 64))).body == BODY


async def test_the_same_bytes_in_another_coding_are_another_body(fetcher: Fetcher) -> None:
    packed = gzip.compress(BODY, mtime=0)
    async with raw_publisher(answering(ok(packed))) as publisher:
        assert (await fetcher.fetch(publisher.url())).body == packed
        publisher.handler = answering(ok(packed, "Content-Encoding: gzip"))
        assert (await fetcher.fetch(publisher.url())).body == BODY


async def test_a_delta_is_requested_and_marked_as_partial(fetcher: Fetcher) -> None:
    """RFC 3229 with the instance manipulation "feed"."""
    answer = b'HTTP/1.1 226 IM Used\r\nIM: feed\r\nETag: "b"\r\nContent-Length: 5\r\n\r\n<new>'
    async with raw_publisher(answering(answer)) as publisher:
        fetched = await fetcher.fetch(publisher.url(), Validators('"a"', "", SHA256))
    assert (fetched.status, fetched.body, fetched.partial) == (226, b"<new>", True)
    assert fetched.validators == Validators('"b"', "", SHA256)
    assert "A-IM: feed\r\n" in publisher.requests[0]


async def test_a_delta_is_partial_even_if_it_equals_the_last_body(fetcher: Fetcher) -> None:
    answer = ok(BODY, "IM: feed").replace(b"200 OK", b"226 IM Used")
    async with raw_publisher(answering(answer)) as publisher:
        fetched = await fetcher.fetch(publisher.url(), Validators('"a"', "", SHA256))
    assert (fetched.body, fetched.partial) == (BODY, True)


async def test_a_complete_response_to_a_delta_request_is_not_partial(fetcher: Fetcher) -> None:
    async with raw_publisher(answering(ok(BODY))) as publisher:
        assert not (await fetcher.fetch(publisher.url(), Validators('"a"'))).partial


@pytest.mark.parametrize("header", ["", "IM: diffe", "IM: feed, gzip"])
async def test_an_unrequested_kind_of_delta_is_an_error(fetcher: Fetcher, header: str) -> None:
    async with raw_publisher(answering(ok(BODY, header or "X: y").replace(b"200 OK", b"226 IM Used"))) as publisher:
        with pytest.raises(BadHttp, match="226"):
            await fetcher.fetch(publisher.url(), Validators('"a"'))


async def test_an_unrequested_delta_is_an_error(fetcher: Fetcher) -> None:
    async with raw_publisher(answering(ok(BODY, "IM: feed").replace(b"200 OK", b"226 IM Used"))) as publisher:
        with pytest.raises(BadHttp, match="226"):
            await fetcher.fetch(publisher.url())


async def test_hub_links_of_a_response_with_a_body_are_returned(fetcher: Fetcher) -> None:
    answer = ok(BODY, "Link: <https://hub.example/>; rel=hub", 'Link: </other>; rel="self"')
    async with raw_publisher(answering(answer)) as publisher:
        fetched = await fetcher.fetch(publisher.url())
    assert fetched.links == HubLinks(("https://hub.example/",), publisher.url("/other"))


async def test_the_publishers_address_is_returned(fetcher: Fetcher) -> None:
    async with raw_publisher(answering(NOT_MODIFIED)) as publisher:
        fetched = await fetcher.fetch(publisher.url(host="localhost"), Validators('"a"'))
    assert (fetched.address, fetched.private) == ("127.0.0.1", True)


async def test_caching_headers_of_a_304_are_returned(fetcher: Fetcher) -> None:
    headers = "Cache-Control: max-age=60\r\nCache-Control: public\r\nAge: 5\r\nX-Odd: \xff\r\n"
    async with raw_publisher(answering(f"HTTP/1.1 304 Not Modified\r\n{headers}\r\n".encode())) as publisher:
        fetched = await fetcher.fetch(publisher.url(), Validators('"a"'))
    assert fetched.headers == {"cache-control": "max-age=60, public", "age": "5"}


async def test_a_compressed_body_is_decoded(fetcher: Fetcher) -> None:
    async with raw_publisher(answering(ok(gzip.compress(BODY), "Content-Encoding: gzip"))) as publisher:
        assert (await fetcher.fetch(publisher.url())).body == BODY


async def test_chunked_and_close_delimited_bodies_are_complete(fetcher: Fetcher) -> None:
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


async def test_a_closed_persistent_connection_does_not_fail_the_fetch(fetcher: Fetcher) -> None:
    served: list[asyncio.StreamWriter] = []

    async def answer_once(_head: str, writer: asyncio.StreamWriter) -> None:
        if writer in served:
            writer.close()
        else:
            served.append(writer)
            writer.write(ok(BODY))

    async with raw_publisher(answer_once) as publisher:
        for _ in range(2):
            assert (await fetcher.fetch(publisher.url())).body == BODY
        assert (publisher.connections, len(publisher.requests)) == (2, 3)


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200"], ids=["at once", "in the status line"])
async def test_a_request_is_not_repeated_on_a_new_connection(fetcher: Fetcher, start: bytes) -> None:
    async with raw_publisher(answering(start)) as publisher:
        with pytest.raises(FetchError):
            await fetcher.fetch(publisher.url())
        assert len(publisher.requests) == 1


async def test_a_temporary_redirect_has_no_permanent_url(fetcher: Fetcher) -> None:
    async with (
        raw_publisher(answering(ok(BODY))) as target,
        raw_publisher(answering(redirect(target.url("/there?utm_source=x#part"), 307))) as publisher,
    ):
        fetched = await fetcher.fetch(publisher.url())
    assert (fetched.url, fetched.permanent_url) == (target.url("/there?utm_source=x"), None)


@pytest.mark.parametrize(("second", "moved_to"), [(308, "/c"), (302, "/b")])
async def test_the_permanent_url_is_the_end_of_the_permanent_redirects(
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
async def test_an_error_status_raises_bad_status(fetcher: Fetcher, status: int) -> None:
    async with raw_publisher(answering(f"HTTP/1.1 {status} Sorry\r\nRetry-After: 120\r\n\r\n".encode())) as publisher:
        with pytest.raises(BadStatus, match=rf"answered {status} \(Sorry\)") as caught:
            await fetcher.fetch(publisher.url())
    assert (caught.value.status, caught.value.retry_after_s) == (status, 120.0)


@pytest.mark.parametrize(
    ("value", "retry_after_s"),
    [("Mon, 01 Jan 2001 00:00:00 GMT", 0.0), ("9" * 30, 604800.0)],
    ids=["long ago", "absurd"],
)
async def test_retry_after_is_limited(fetcher: Fetcher, value: str, retry_after_s: float) -> None:
    async with raw_publisher(answering(f"HTTP/1.1 503 Busy\r\nRetry-After: {value}\r\n\r\n".encode())) as publisher:
        with pytest.raises(BadStatus) as caught:
            await fetcher.fetch(publisher.url())
    assert caught.value.retry_after_s == retry_after_s


async def test_a_retry_after_date_is_relative_to_now(fetcher: Fetcher) -> None:
    asked_s = time()
    value = formatdate(asked_s + 3600, usegmt=True)
    async with raw_publisher(answering(f"HTTP/1.1 503 Busy\r\nRetry-After: {value}\r\n\r\n".encode())) as publisher:
        with pytest.raises(BadStatus) as caught:
            await fetcher.fetch(publisher.url())
    assert caught.value.retry_after_s is not None
    assert asked_s + 3599 <= time() + caught.value.retry_after_s
    assert caught.value.retry_after_s <= 3600


@pytest.mark.parametrize("value", ["soon", "-5", "", "\xb2"])
async def test_an_invalid_retry_after_is_ignored(fetcher: Fetcher, value: str) -> None:
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
