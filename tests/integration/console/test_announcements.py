"""Announcements on their page and in the API: previewed, started once, stopped; by admins only."""

import re
from collections.abc import AsyncIterator

import aiohttp
import pytest_asyncio
from aiohttp import web
from msgspec import convert

from bots.i18n.translator import LANGUAGES, SOURCE_LANGUAGE
from service.console.resources.delivery import announcements
from service.store import Store
from service.store.console.accounts import Role
from service.users.user_settings import UserSettings
from tests.support.channels import make_channel
from tests.support.console import TOKEN, Visitor, logged_in


@pytest_asyncio.fixture
async def api(served: tuple[str, web.Application]) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"{served[0]}/api/v1/", headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        yield session


async def make_people(store: Store) -> None:
    for name in ("alice", "bert", "carla"):
        await store.users.mark_welcomed(f"{name}@example.org")
    await store.users.set_user_settings("bert@example.org", UserSettings(language="de"))


async def test_an_announcement_is_previewed_and_sent_once(store: Store, ada: Visitor) -> None:
    await make_people(store)
    fields = {"text": "We move on Friday.", "text_de": "Umzug am Freitag.", "to": "people", "minutes": "5"}
    status, text = await ada.post("/announcements/preview", **fields)
    assert status == 200
    assert "<strong>3 recipients</strong> (people)" in text
    assert "Umzug am Freitag." in text
    assert await store.announcements.latest() == []
    number = re.findall(r'name="number" value="(\d+)"', text)[0]
    for _ in range(2):
        assert await ada.post("/announcements", number=number, **fields) == (303, "/announcements")
    (progress,) = await store.announcements.latest()
    assert (progress.remaining, progress.announcement.by) == (3, "ada")
    assert progress.announcement.translations == {"de": "Umzug am Freitag."}
    _, text = await ada.get("/announcements")
    assert "0 of 3" in text
    assert await ada.post(f"/announcements/{number}/stop") == (303, "/announcements")
    assert "Stopped" in (await ada.get("/announcements"))[1]
    assert (await ada.post(f"/announcements/{number}/stop"))[0] == 404
    log = [record.deed.detail for record in (await store.audit_log.page())[0]]
    assert any("3 recipients (people)" in detail for detail in log)


async def test_wrong_values_are_refused_with_the_form_filled_in(store: Store, ada: Visitor) -> None:
    await make_people(store)
    status, text = await ada.post("/announcements/preview", text="Hello", minutes="0")
    assert status == 422
    assert ">Hello</textarea>" in text
    assert "<details>" in text
    status, text = await ada.post("/announcements/preview", text="Hello", text_pl="Witaj", text_nl="Hallo", minutes="0")
    assert status == 422
    assert "<details open>" in text
    assert ">Witaj</textarea>" in text
    status, text = await ada.post("/announcements/preview", text="Hello", channel="https://example.org/feed")
    assert status == 422
    assert "There is no channel" in text
    status, text = await ada.post("/announcements/preview", text="Hello", addresses="nobody@example.org")
    assert status == 200
    assert "Nobody would get this announcement" in text
    assert (await ada.post("/announcements", text="Hello"))[0] == 422


async def test_the_api_announces_to_selected_recipients(store: Store, api: aiohttp.ClientSession) -> None:
    await make_people(store)
    channel = await make_channel(store, "https://news.example.org/feed")
    await store.subscriptions.subscribe("carla@example.org", channel.id)
    for chosen, count in (
        ({}, 3),
        ({"language": "de"}, 1),
        ({"channel": "https://news.example.org/feed"}, 1),
        ({"channel": channel.id}, 1),
        ({"host": "news.example.org"}, 1),
        ({"addresses": ["Alice@example.org", "x@y"]}, 1),
        ({"to": "rooms"}, 0),
    ):
        async with api.post("announcements/preview", json={"text": "Hello", **chosen}) as answer:
            assert (answer.status, (await answer.json())["recipients"]) == (200, count), chosen
    async with api.post("announcements", json={"text": "Hello", "language": "de"}) as answer:
        assert (answer.status, (await answer.json())["recipients"]) == (200, 1)
    async with api.get("announcements") as answer:
        (item,) = (await answer.json())["items"]
    assert (item["state"], item["audience"]) == ("running", "people and rooms, with the language German")
    async with api.post(f"announcements/{item['number']}/stop") as answer:
        assert answer.status == 204
    async with api.post("announcements", json={"text": "Hello", "to": "rooms"}) as answer:
        assert answer.status == 422


async def test_only_admins_announce(store: Store, served: tuple[str, web.Application]) -> None:
    async with logged_in(served[0], store, "otto", Role.OPERATOR) as otto:
        assert (await otto.get("/announcements"))[0] == 403
        assert (await otto.post("/announcements/preview", text="Hello"))[0] == 403


def test_a_text_can_be_given_in_each_language_of_the_bot() -> None:
    assert tuple(announcements.LANGUAGES) == LANGUAGES
    translations = {code: f"In {code}" for code in LANGUAGES if code != SOURCE_LANGUAGE}
    texts = {f"text_{code}": text for code, text in translations.items()}
    for code in LANGUAGES:
        draft = convert({"text": "Hello", "language": code, **texts}, announcements.AnnouncementDraft)
        assert draft.translations() == translations
