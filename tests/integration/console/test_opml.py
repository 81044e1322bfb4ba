"""OPML import and export in the API and on pages."""

from collections.abc import AsyncIterator, Mapping
from io import BytesIO
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from service.errors import CoronetError, HostNotFound, LimitReached, to_fault
from service.feeds.canonical_urls import channel_id
from service.feeds.opml_parser import parse
from service.feeds.opml_writer import OpmlSubscription, write
from service.model import Channel, FeedLink
from service.store import Store
from service.store.client.keys import user_id
from service.store.coordination.worker_requests import ErrorReply, ProbeReply, ProbeRequest, WorkerReply
from tests.support.channels import make_channel
from tests.support.console import TOKEN, Asked, Visitor, worker

CATS, DOGS, GONE, BUSY, PAGE, BARE = (
    f"https://{name}.example/feed" for name in ("cats", "dogs", "gone", "busy", "page", "bare")
)
FOUND: Mapping[str, ProbeReply | CoronetError] = {
    GONE: HostNotFound("gone.example has no address."),
    BUSY: LimitReached("busy.example was asked often enough."),
    PAGE: ProbeReply(choices=(FeedLink("https://page.example/a"), FeedLink("https://page.example/b"))),
    BARE: ProbeReply(page=True),
}


@pytest_asyncio.fixture
async def api(served: tuple[str, web.Application]) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(f"{served[0]}/api/v1/", headers=headers) as session:
        yield session


def _looked_at(asked: Asked) -> WorkerReply:
    assert isinstance(asked, ProbeRequest)
    found = FOUND.get(asked.url, ProbeReply(Channel(channel_id(asked.url), asked.url)))
    return ErrorReply(to_fault(found)) if isinstance(found, CoronetError) else found


def _file(*urls: str) -> bytes:
    return write("Mine", [OpmlSubscription(url) for url in urls])


async def _import(api: aiohttp.ClientSession, body: bytes) -> tuple[int, Any]:
    async with api.post("opml", data=BytesIO(body), headers={"Content-Type": "text/x-opml"}) as answer:
        return answer.status, await answer.json(content_type=None)


async def test_only_polled_channels_are_exported(store: Store, api: aiohttp.ClientSession) -> None:
    await make_channel(store, CATS, listed=True)
    subscribed = await make_channel(store, DOGS)
    await store.channel_index.add(subscribed.id, user_id("somebody@localhost"), 1)
    await make_channel(store, GONE)
    async with api.get("channels.opml") as answer:
        assert answer.content_type == "text/x-opml"
        assert answer.headers["Content-Disposition"] == 'attachment; filename="coronet.opml"'
        outline = parse(await answer.read())
    assert {feed.url for feed in outline.feeds} == {CATS, DOGS}
    assert {feed.title for feed in outline.feeds} == {"A feed"}


async def test_export_spans_several_batches(
    store: Store, api: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.console.resources.channels.opml._BATCH_SIZE", 3)
    for number in range(7):
        await make_channel(store, f"{CATS}/{number}", listed=True)
    async with api.get("channels.opml") as answer:
        assert len(parse(await answer.read()).feeds) == 7


async def test_imported_feeds_are_listed(store: Store, api: aiohttp.ClientSession) -> None:
    made = [await make_channel(store, url) for url in (CATS, DOGS)]
    async with worker(store, _looked_at):
        assert await _import(api, _file(CATS, DOGS)) == (200, {"kept": 2, "left": 0, "problems": []})
    assert [channel.listed for channel in await store.channels.get_many([each.id for each in made]) if channel] == [
        True
    ] * 2


async def test_an_imported_page_is_probed_as_a_page(store: Store, api: aiohttp.ClientSession) -> None:
    asked: list[Asked] = []

    def look(probe: Asked) -> WorkerReply:
        asked.append(probe)
        return _looked_at(probe)

    async with worker(store, look):
        await _import(api, write("Mine", [OpmlSubscription(f"{CATS}#main", page=True)]))
    assert asked == [ProbeRequest(f"{CATS}#main", as_page=True)]


async def test_import_reports_problems_per_feed(store: Store, api: aiohttp.ClientSession) -> None:
    await make_channel(store, CATS)
    async with worker(store, _looked_at):
        status, done = await _import(api, _file("ftp://x.example/", GONE, PAGE, BARE, CATS, BUSY))
    assert (status, done["kept"], done["left"]) == (200, 1, 1)
    problems = sorted(done["problems"])
    assert problems[0].startswith("Line ")
    assert problems[1:] == [
        f"{BARE}: This page links to no feed.",
        f"{GONE}: gone.example has no address.",
        f"{PAGE}: This page links to several feeds: add one of them.",
    ]


async def test_listed_feeds_are_not_probed_again(store: Store, api: aiohttp.ClientSession) -> None:
    await make_channel(store, CATS, listed=True)
    assert await _import(api, _file(CATS)) == (200, {"kept": 1, "left": 0, "problems": []})


async def test_import_stops_at_the_time_limit(
    store: Store, api: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.console.resources.channels.opml._TIME_LIMIT_S", 0.2)
    await store.ring.join("deaf", "", 60.0, lambda _: "a" * 40)
    await make_channel(store, CATS, listed=True)
    assert await _import(api, _file(CATS, DOGS, GONE)) == (200, {"kept": 1, "left": 2, "problems": []})


async def test_import_without_a_worker_fails(api: aiohttp.ClientSession) -> None:
    status, problem = await _import(api, _file(CATS, DOGS))
    assert (status, problem["code"]) == (503, "no-worker")


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"hello", 422), (b"<html/>", 422), (b'<!DOCTYPE o [<!ENTITY a "b">]><opml/>', 422), (b" " * 5_300_000, 413)],
)
async def test_a_file_that_is_not_opml_is_refused(api: aiohttp.ClientSession, body: bytes, status: int) -> None:
    assert (await _import(api, body))[0] == status


async def test_a_wrong_media_type_is_refused(api: aiohttp.ClientSession) -> None:
    async with api.post("opml", json={}) as answer:
        assert answer.status == 415


async def _upload(ada: Visitor, file: bytes | None, **fields: str) -> tuple[int, str]:
    form = aiohttp.FormData({"csrf": ada.csrf, **fields})
    if file is not None:
        form.add_field("file", BytesIO(file), filename="mine.opml", content_type="text/xml")
    async with ada.http.post("/channels/import", data=form, headers={"Origin": ada.origin}) as answer:
        return answer.status, await answer.text()


async def test_an_uploaded_file_is_imported(store: Store, ada: Visitor) -> None:
    await make_channel(store, CATS)
    async with worker(store, _looked_at):
        status, text = await _upload(ada, _file(CATS, GONE, BUSY, "javascript:alert('<b>')"))
    assert status == 200
    assert "1 feed of the file is listed now" in text
    assert "1 feed has not been processed" in text
    assert "gone.example has no address." in text
    assert "<b>" not in text


@pytest.mark.parametrize(("file", "words"), [(None, "Choose a file first"), (b"", "no tag"), (b"<html/>", "not OPML")])
async def test_an_invalid_upload_is_refused(ada: Visitor, file: bytes | None, words: str) -> None:
    status, text = await _upload(ada, file)
    assert status == 422
    assert words in text


async def test_an_upload_requires_the_csrf_token(ada: Visitor) -> None:
    assert (await _upload(ada, _file(CATS), csrf="0" * 64))[0] == 403


async def test_pages_link_to_import_and_export(ada: Visitor) -> None:
    assert 'href="/api/v1/channels.opml"' in (await ada.get("/channels"))[1]
    assert 'action="/channels/import"' in (await ada.get("/channels/add"))[1]
