"""Requests with a credential: it goes to the origin of the URL only, and not without encryption to public hosts."""

import asyncio

import pytest

from service.errors import BadUrl
from service.feeds.canonical_urls import protected_url
from service.feeds.credentials import Credential
from service.net.address_guard import AddressGuard
from service.net.fetcher import Fetcher
from service.net.link_headers import HubLinks
from tests.integration.net.conftest import AGENT
from tests.support.raw_http import RawPublisher, answering, ok, raw_publisher, redirect

KEY = Credential("X-Key", "s3cret")


def routes(publisher: RawPublisher, **answers: bytes) -> None:
    """Let the publisher answer each path, given as a keyword, with these bytes."""

    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(answers[head.split()[1].strip("/")])
        await writer.drain()

    publisher.handler = answer


async def test_the_credential_is_sent_also_after_redirects_within_the_origin(fetcher: Fetcher) -> None:
    async with raw_publisher(answering()) as publisher:
        routes(publisher, a=redirect("/b"), b=ok(b"<rss/>"))
        assert (await fetcher.fetch(publisher.url("/a"), credential=KEY)).body == b"<rss/>"
        assert all("X-Key: s3cret" in head for head in publisher.requests)


@pytest.mark.parametrize("back", [False, True])
async def test_the_credential_is_not_sent_after_a_redirect_to_another_origin(fetcher: Fetcher, *, back: bool) -> None:
    async with raw_publisher(answering()) as publisher, raw_publisher(answering()) as other:
        routes(publisher, a=redirect(other.url("/b"), 301), c=ok(b"<rss/>"))
        routes(other, b=redirect(publisher.url("/c")) if back else ok(b"<rss/>"))
        await fetcher.fetch(publisher.url("/a"), credential=KEY)
        first, *later = [*publisher.requests, *other.requests]
        assert "s3cret" in first
        assert later
        assert not any("s3cret" in head for head in later)


async def test_permanent_redirects_and_hubs_of_a_protected_document_are_ignored(fetcher: Fetcher) -> None:
    hub = '<https://hub.example/>; rel="hub"'
    async with raw_publisher(answering()) as publisher:
        routes(publisher, a=redirect("/b", 301), b=ok(b"<rss/>", f"Link: {hub}"))
        fetched = await fetcher.fetch(publisher.url("/a"), credential=KEY)
    assert (fetched.permanent_url, fetched.links, fetched.is_protected) == (None, HubLinks(), True)


async def test_the_stored_credential_of_a_protected_channel_is_looked_up_by_its_url() -> None:
    asked = []

    async def find(url: str) -> Credential:
        asked.append(url)
        return KEY

    async with (
        Fetcher(AGENT, AddressGuard(allow_private=True), find_credential=find) as fetcher,
        raw_publisher(answering(ok(b"<rss/>"), then_close=False)) as publisher,
    ):
        await fetcher.fetch(publisher.url())
        await fetcher.fetch(protected_url(publisher.url(), "reader"))
        assert asked == [protected_url(publisher.url(), "reader")]
        assert ["s3cret" in head for head in publisher.requests] == [False, True]
        assert "login=" not in "".join(publisher.requests)


async def test_without_private_networks_a_credential_needs_https(strict_fetcher: Fetcher) -> None:
    async with raw_publisher(answering(ok(b"<rss/>"))) as publisher:
        with pytest.raises(BadUrl, match="https://"):
            await strict_fetcher.fetch(publisher.url(), credential=KEY)
        assert not publisher.connections


async def test_with_private_networks_a_credential_for_a_public_host_needs_https(fetcher: Fetcher) -> None:
    with pytest.raises(BadUrl, match="https://"):
        await fetcher.fetch("http://8.8.8.8/feed", credential=KEY)
