"""Changing the selector of a page: preview, move of subscribers, and audit entry."""

import aiohttp
import pytest
from aiohttp import web

from service.feeds.canonical_urls import page_url
from service.model import Channel, Entry
from service.store import Store
from service.store.coordination.worker_requests import MoveReply, MoveRequest, ProbeReply, ProbeRequest, WorkerReply
from tests.support.channels import make_channel
from tests.support.console import TOKEN, Asked, Visitor, worker

URL = "https://example.org/prices"


async def _page_and_part(store: Store) -> tuple[Channel, Channel]:
    part = await make_channel(store, page_url(URL, "main table"), kind="page")
    return await make_channel(store, URL, kind="page"), part


async def test_a_selector_is_previewed_and_changed(store: Store, ada: Visitor) -> None:
    page, part = await _page_and_part(store)
    await store.subscriptions.subscribe("bob@example.org", page.id)
    asked: list[Asked] = []

    def answer(body: Asked) -> WorkerReply:
        asked.append(body)
        return MoveReply() if isinstance(body, MoveRequest) else ProbeReply(part, (Entry("k", summary="Apples 1.20"),))

    assert 'action="/channels/' + page.id + '/selector"' in (await ada.get(f"/channels/{page.id}"))[1]
    async with worker(store, answer):
        status, text = await ada.post(f"/channels/{page.id}/selector", selector=" main  table ")
        assert status == 200
        assert "Apples 1.20" in text
        assert "1 subscriber moves to a new channel" in text
        assert asked == [ProbeRequest(part.url, as_page=True, keep=False, afresh=True)]
        moved = await ada.post(f"/channels/{page.id}/selector", selector="main table", sure="1")
        assert moved == (303, f"/channels/{part.id}")
        assert asked[1:] == [ProbeRequest(part.url, as_page=True, afresh=True), MoveRequest(page.id, part.url)]
    _, log = await ada.get("/log")
    assert "whole page → main table" in log


@pytest.mark.parametrize(
    ("kind", "words"), [("page", "This part is already being watched"), ("feed", "Only pages have a selector")]
)
async def test_an_invalid_selector_change_is_refused(store: Store, ada: Visitor, kind: str, words: str) -> None:
    channel = await make_channel(store, URL, kind="feed" if kind == "feed" else "page")
    selector = "" if kind == "page" else "main"
    status, text = await ada.post(f"/channels/{channel.id}/selector", selector=selector, sure="1")
    assert status == 422
    assert words in text
    assert (await ada.post(f"/channels/{'f' * 40}/selector", selector="a"))[0] == 404
    assert ('id="selector"' in (await ada.get(f"/channels/{channel.id}"))[1]) == (kind == "page")


async def test_the_api_changes_selectors(store: Store, served: tuple[str, web.Application]) -> None:
    page, part = await _page_and_part(store)
    headers, body = {"Authorization": f"Bearer {TOKEN}"}, {"selector": "main table"}
    async with (
        aiohttp.ClientSession(f"{served[0]}/api/v1/", headers=headers) as api,
        worker(
            store,
            lambda body: MoveReply() if isinstance(body, MoveRequest) else ProbeReply(part, (Entry("k", "Apples"),)),
        ),
    ):
        async with api.post(f"channels/{page.id}/selector/preview", json=body) as answer:
            seen = await answer.json()
            assert (answer.status, seen["url"], seen["latest"][0]["title"]) == (200, part.url, "Apples")
        async with api.put(f"channels/{page.id}/selector", json=body) as answer:
            assert (answer.status, (await answer.json())["channel"]["id"]) == (200, part.id)
        async with api.put(f"channels/{page.id}/selector", json={"selector": "a" * 300}) as answer:
            assert answer.status == 422
