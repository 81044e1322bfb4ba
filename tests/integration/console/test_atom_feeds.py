"""Atom feeds: secret addresses, mutes and filters, conditional and compressed responses, public channels."""

import gzip
import time
from collections.abc import AsyncIterator
from xml.etree.ElementTree import Element, fromstring

import aiohttp
import pytest_asyncio
from aiohttp import web

from service.console.atom_feeds import MAX_ENTRIES, MAX_REQUESTS_PER_MINUTE
from service.corona.update_rates import UpdateHistory
from service.feeds.atom_writer import NS_ATOM
from service.feeds.canonical_urls import protected_url
from service.model import Change, Channel, Entry
from service.store import Store
from service.store.client import keys
from service.users.filters import parse_rule
from service.users.preferences import FOR_ALL, NO_PREFERENCES, Preferences
from tests.support.channels import change, make_channel, publish, restate

ALICE = "alice@localhost"
UID = keys.user_id(ALICE)


@pytest_asyncio.fixture
async def http(served: tuple[str, web.Application]) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(served[0], auto_decompress=False) as session:
        yield session


async def read(http: aiohttp.ClientSession, path: str, **headers: str) -> tuple[int, bytes, aiohttp.ClientResponse]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with http.get(path, headers={"Accept-Encoding": "identity", **named}) as answer:
        return answer.status, await answer.read(), answer


async def feed(http: aiohttp.ClientSession, path: str) -> Element:
    status, body, _ = await read(http, path)
    assert status == 200, body
    return fromstring(body)  # noqa: S314 - we wrote it


def titles(document: Element) -> list[str | None]:
    return [entry.findtext(f"{{{NS_ATOM}}}title") for entry in document.iterfind(f"{{{NS_ATOM}}}entry")]


async def path_of(store: Store, scope: str = "") -> str:
    path = f"/feeds/{await store.feed_links.token(UID)}.atom"
    return f"{path}?{scope}" if scope else path


async def followed(store: Store, name: str, preferences: Preferences = NO_PREFERENCES) -> Channel:
    """Return a channel with one new entry, to which Alice subscribes with these preferences."""
    channel = await make_channel(store, f"https://example.org/{name}")
    subscription, _ = await store.subscriptions.subscribe(ALICE, channel.id)
    await store.preferences.put(ALICE, subscription.number, preferences)
    await publish(store, channel, f"{name}-news")
    return channel


async def test_a_feed_has_the_latest_entries_of_all_subscriptions(http: aiohttp.ClientSession, store: Store) -> None:
    await followed(store, "one", Preferences(title="My own"))
    await followed(store, "two")
    await make_channel(store, "https://example.org/strange")
    document = await feed(http, await path_of(store))
    assert titles(document) == ["Entry two-news", "Entry one-news", "First", "First"]
    sources = [entry.findtext(f"{{{NS_ATOM}}}source/{{{NS_ATOM}}}title") for entry in document if len(entry) > 3]
    assert "My own" in sources
    ids = [element.text for element in document.iter(f"{{{NS_ATOM}}}id")]
    assert str(ids[0]).endswith(await path_of(store))
    assert all(document.findtext(f"{{{NS_ATOM}}}{name}") for name in ("id", "title", "updated", "author/"))


async def test_a_feed_may_be_of_one_subscription_or_of_a_folder(http: aiohttp.ClientSession, store: Store) -> None:
    await followed(store, "one", Preferences(folder="Work"))
    await followed(store, "two", Preferences(folder="Fun & games"))
    assert titles(await feed(http, await path_of(store, "channel=1"))) == ["Entry one-news", "First"]
    document = await feed(http, await path_of(store, "folder=Fun+%26+games"))
    assert titles(document) == ["Entry two-news", "First"]
    assert document.findtext(f"{{{NS_ATOM}}}title") == "Fun & games"
    await store.subscriptions.unsubscribe(ALICE, (await store.subscriptions.of_user(ALICE))[0].channel)
    assert (await read(http, await path_of(store, "channel=1")))[0] == 404


async def test_mutes_filters_and_pauses_apply(http: aiohttp.ClientSession, store: Store) -> None:
    channel = await followed(store, "one")
    await followed(store, "muted", Preferences(muted=True))
    await store.preferences.put(ALICE, FOR_ALL, Preferences(rules=(parse_rule("crypto", allow=False),), edits=False))
    edited = Entry("one-news", "Edited", "https://example.org/e")
    added = [Change("addition", Entry(title, title)) for title in ("Crypto!", "Tea")]
    await change(store, channel, *added, Change("replacement", edited), base=2)
    path = await path_of(store)
    assert titles(await feed(http, path)) == ["Tea", "Entry one-news", "First"]
    await store.pauses.pause(ALICE, [channel.id])
    await publish(store, channel, "withheld", base=3)
    await store.subscriptions.of_user(ALICE)
    assert "Entry withheld" not in titles(await feed(http, path))


async def test_the_reader_of_a_protected_channel_is_not_shown(http: aiohttp.ClientSession, store: Store) -> None:
    channel = await make_channel(store, protected_url("https://example.org/private", UID), listed=True)
    await store.subscriptions.subscribe(ALICE, channel.id)
    _, body, _ = await read(http, await path_of(store))
    assert b"https://example.org/private</id>" in body
    assert body.count(UID.encode()) == 1, "only in the link of the entry, which this test has made from the URL"
    assert (await read(http, f"/channels/{channel.id}.atom"))[0] == 404


async def test_an_edited_entry_is_shown_once_as_it_is_now(http: aiohttp.ClientSession, store: Store) -> None:
    channel = await followed(store, "one")
    await change(store, channel, Change("replacement", Entry("one-news", "Edited")), base=2)
    assert titles(await feed(http, await path_of(store))) == ["Edited", "First"]


async def test_a_feed_has_at_most_a_hundred_entries(http: aiohttp.ClientSession, store: Store) -> None:
    first, second = await followed(store, "one"), await followed(store, "two")
    await publish(store, first, *(f"a{n}" for n in range(MAX_ENTRIES)), base=2)
    await publish(store, second, "latest", base=2)
    for channel in (first, second):
        await restate(store, channel.id, updates=UpdateHistory(since_s=time.time()))
    found = titles(await feed(http, await path_of(store)))
    assert found[:2] == ["Entry latest", f"Entry a{MAX_ENTRIES - 1}"]
    assert len(found) == MAX_ENTRIES


async def test_an_unchanged_feed_is_not_sent_again(http: aiohttp.ClientSession, store: Store) -> None:
    channel = await followed(store, "one")
    path = await path_of(store)
    _, _, first = await read(http, path)
    known = {"If_None_Match": first.headers["ETag"]}
    status, body, again = await read(http, path, **known)
    assert (status, body, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    assert (await read(http, path, If_Modified_Since=first.headers["Last-Modified"]))[0] == 304
    assert (await read(http, path, If_Modified_Since="Thu, 01 Jan 1970 00:00:00 GMT"))[0] == 200
    await publish(store, channel, "more", base=2)
    status, body, _ = await read(http, path, **known)
    assert status == 200
    assert b"Entry more" in body
    await store.preferences.put(ALICE, 1, Preferences(muted=True))
    assert titles(await feed(http, path)) == []


async def test_a_feed_is_compressed_and_kept_private(http: aiohttp.ClientSession, store: Store) -> None:
    await followed(store, "one")
    path = await path_of(store)
    _, body, answer = await read(http, path, Accept_Encoding="gzip")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert b"Entry one-news" in gzip.decompress(body)
    assert answer.content_type == "application/atom+xml"
    assert answer.headers["Cache-Control"].startswith("private")
    assert answer.headers["X-Robots-Tag"] == "noindex"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert "Set-Cookie" not in answer.headers


async def test_an_address_that_was_revoked_forged_or_belongs_to_a_suspended_person_shows_nothing(
    http: aiohttp.ClientSession, store: Store
) -> None:
    await followed(store, "one")
    path = await path_of(store)
    for forged in (path.replace(".atom", "x.atom"), f"{path}?channel=7", "/feeds/%C3%BC.atom"):
        assert (await read(http, forged))[0] == 404
    await store.users.mark_welcomed(ALICE)
    await store.people.set_suspended(UID, suspended=True)
    assert (await read(http, path))[0] == 404
    await store.people.set_suspended(UID, suspended=False)
    assert (await read(http, path))[0] == 200
    await store.feed_links.revoke(UID)
    assert (await read(http, path))[0] == 404


async def test_only_public_channels_have_a_feed_for_everybody(http: aiohttp.ClientSession, store: Store) -> None:
    public = await make_channel(store, "https://example.org/public", listed=True)
    await store.channels.set_listed(public.id, listed=True)
    await publish(store, public, "news")
    private = await make_channel(store, "https://example.org/private")
    document = await feed(http, f"/channels/{public.id}.atom")
    assert titles(document) == ["Entry news", "First"]
    assert (await read(http, f"/channels/{private.id}.atom"))[0] == 404
    assert (await read(http, f"/channels/{'0' * 40}.atom"))[0] == 404


async def test_requests_from_one_network_are_limited(http: aiohttp.ClientSession, store: Store) -> None:
    await followed(store, "one")
    path = await path_of(store)
    for _ in range(MAX_REQUESTS_PER_MINUTE):
        assert (await read(http, path))[0] == 200
    status, _, answer = await read(http, path)
    assert (status, answer.headers["Retry-After"]) == (429, "60")
