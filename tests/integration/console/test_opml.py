"""OPML import and export in the API and on pages."""

import csv
import io
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
from service.store.client import keys
from service.store.client.keys import user_id
from service.store.coordination.worker_requests import ErrorReply, ProbeReply, ProbeRequest, WorkerReply
from tests.support.channels import make_channel
from tests.support.console import TOKEN, Asked, Visitor, worker
from tests.support.waiting import until

CATS, DOGS, GONE, BUSY, PAGE, BARE = (
    f"https://{name}.example/feed" for name in ("cats", "dogs", "gone", "busy", "page", "bare")
)
COUNTS = ("new", "existing", "failed", "pending")
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


async def _post(api: aiohttp.ClientSession, body: bytes) -> tuple[int, Any]:
    async with api.post("opml", data=BytesIO(body), headers={"Content-Type": "text/x-opml"}) as answer:
        return answer.status, await answer.json(content_type=None)


async def _get(api: aiohttp.ClientSession, ident: str) -> dict[str, Any]:
    async with api.get(f"imports/{ident}") as answer:
        found: dict[str, Any] = await answer.json(content_type=None)
        return found


async def _import(api: aiohttp.ClientSession, body: bytes) -> dict[str, Any]:
    """Import a file; return the progress at the end, without the id and the times."""
    status, begun = await _post(api, body)
    assert status == 202
    return await _ended(api, begun["id"])


async def _ended(api: aiohttp.ClientSession, ident: str) -> dict[str, Any]:
    async def has_ended() -> bool:
        return bool((await _get(api, ident))["ended_s"])

    await until(has_ended, "the import has ended", within_s=20)
    return {name: count for name, count in (await _get(api, ident)).items() if name in COUNTS}


async def _failed(api: aiohttp.ClientSession, ident: str) -> list[list[str]]:
    async with api.get(f"imports/{ident}/failed.csv") as answer:
        assert (answer.status, answer.content_type) == (200, "text/csv")
        _, *rows = csv.reader(io.StringIO(await answer.text(), newline=""))
        return sorted(rows, key=lambda row: int(row[0] or 0))


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


async def test_export_spans_several_batches(store: Store, api: aiohttp.ClientSession) -> None:
    for number in range(7):
        await make_channel(store, f"{CATS}/{number}", listed=True)
    async with api.get("channels.opml") as answer:
        assert len(parse(await answer.read()).feeds) == 7


async def test_imported_feeds_are_listed(store: Store, api: aiohttp.ClientSession) -> None:
    made = [await make_channel(store, url) for url in (CATS, DOGS)]
    status, begun = await _post(api, _file(CATS, DOGS))
    assert (status, begun["ended_s"]) == (202, 0)
    assert await _ended(api, begun["id"]) == {"new": 2, "existing": 0, "failed": 0, "pending": 0}
    found = await store.channels.get_many([each.id for each in made])
    assert [channel.listed for channel in found if channel] == [True, True]


async def test_an_imported_page_is_probed_as_a_page(store: Store, api: aiohttp.ClientSession) -> None:
    asked: list[Asked] = []

    def look(probe: Asked) -> WorkerReply:
        asked.append(probe)
        return _looked_at(probe)

    async with worker(store, look):
        await _import(api, write("Mine", [OpmlSubscription(f"{CATS}#main", page=True)]))
    assert asked == [ProbeRequest(f"{CATS}#main", as_page=True)]


async def test_an_import_reports_failed_feeds_with_their_lines(store: Store, api: aiohttp.ClientSession) -> None:
    await make_channel(store, CATS)
    async with worker(store, _looked_at):
        _, begun = await _post(api, _file("ftp://x.example/", GONE, PAGE, BARE, CATS))
        assert await _ended(api, begun["id"]) == {"new": 1, "existing": 0, "failed": 4, "pending": 0}
    problem, *failed = await _failed(api, begun["id"])
    assert problem[2].startswith("Line 7: ")
    assert failed == [
        ["8", GONE, "gone.example has no address."],
        ["9", PAGE, "There is a page that names no feed, or several."],
        ["10", BARE, "There is a page that names no feed, or several."],
    ]


async def test_listed_feeds_are_not_probed_again(store: Store, api: aiohttp.ClientSession) -> None:
    await make_channel(store, CATS, listed=True)
    assert await _import(api, _file(CATS)) == {"new": 0, "existing": 1, "failed": 0, "pending": 0}


async def test_a_feed_of_a_busy_publisher_is_added_later(
    store: Store, api: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.opml_import_runner._RETRY_DELAY_S", 0.1)
    asked = 0

    def look(probe: Asked) -> WorkerReply:
        nonlocal asked
        asked += 1
        return _looked_at(probe if asked == 3 else ProbeRequest(BUSY))

    async with worker(store, look):
        assert await _import(api, _file(CATS)) == {"new": 1, "existing": 0, "failed": 0, "pending": 0}
    assert asked == 3


async def test_an_import_waits_for_a_worker_and_can_be_stopped(
    store: Store, api: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.opml_import_runner._RETRY_DELAY_S", 0.1)
    await make_channel(store, CATS)
    _, begun = await _post(api, _file(CATS, DOGS, GONE))

    async def is_one_listed() -> bool:
        return bool((await _get(api, begun["id"]))["new"])

    await until(is_one_listed, "the known channel is listed")
    async with api.delete(f"imports/{begun['id']}") as answer:
        assert answer.status == 204
    assert await _ended(api, begun["id"]) == {"new": 1, "existing": 0, "failed": 0, "pending": 0}


async def test_another_console_continues_an_import_when_the_lease_has_ended(
    store: Store, api: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_channel(store, CATS, listed=True)
    monkeypatch.setattr("service.console.opml_importer._CHECK_INTERVAL_S", 0.5)
    ident = await store.console_imports.start(parse(_file(CATS)))
    await store.redis.call("SET", keys.console_import_lease(ident), 1, "EX", 2)  # of a console that was killed
    assert await _ended(api, ident) == {"new": 0, "existing": 1, "failed": 0, "pending": 0}


async def test_an_unknown_import_is_not_found(api: aiohttp.ClientSession) -> None:
    for method, path in (("GET", "imports/1"), ("DELETE", "imports/1"), ("GET", "imports/1/failed.csv")):
        async with api.request(method, path) as answer:
            assert answer.status == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"hello", 422), (b"<html/>", 422), (b'<!DOCTYPE o [<!ENTITY a "b">]><opml/>', 422), (b" " * 5_300_000, 413)],
)
async def test_a_file_that_is_not_opml_is_refused(api: aiohttp.ClientSession, body: bytes, status: int) -> None:
    assert (await _post(api, body))[0] == status


async def test_a_wrong_media_type_is_refused(api: aiohttp.ClientSession) -> None:
    async with api.post("opml", json={}) as answer:
        assert answer.status == 415


async def _upload(ada: Visitor, file: bytes | None, **fields: str) -> tuple[int, str]:
    form = aiohttp.FormData({"csrf": ada.csrf, **fields})
    if file is not None:
        form.add_field("file", BytesIO(file), filename="mine.opml", content_type="text/xml")
    origin = {"Origin": ada.origin}
    async with ada.http.post("/channels/import", data=form, headers=origin, allow_redirects=False) as answer:
        return answer.status, answer.headers.get("Location") or await answer.text()


async def test_an_uploaded_file_is_imported(store: Store, ada: Visitor, api: aiohttp.ClientSession) -> None:
    await make_channel(store, CATS)
    async with worker(store, _looked_at):
        status, path = await _upload(ada, _file(CATS, GONE, "javascript:alert('<b>')"))
        assert status == 303
        await _ended(api, path.rpartition("/")[2])
    _, text = await ada.get(path)
    assert "The import ended" in text
    assert '<progress value="3" max="3"' in text
    assert "3 of 3 feeds" in text
    assert f'href="/api/v1{path}/failed.csv"' in text
    assert f'href="{path}"' in (await ada.get("/channels/add"))[1]


async def test_a_running_import_is_shown_with_its_progress_and_stopped(store: Store, ada: Visitor) -> None:
    _, path = await _upload(ada, _file(CATS, DOGS))  # there is no worker
    _, text = await ada.get(path)
    assert "The import is running" in text
    assert '<progress value="0" max="2"' in text
    assert 'hx-trigger="every 5s"' in text
    assert await ada.post(f"{path}/stop") == (303, path)
    assert not await store.console_imports.has_pending(path.rpartition("/")[2])


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
