"""Pages show times in the time zone of the account."""

import re

import pytest

from service.console.auth.passwords import Passwords
from service.feeds.canonical_urls import channel_id
from service.model import Channel, Validators
from service.store import Store
from service.store.channels.channel_records import Snapshot
from service.store.console.accounts import Account
from tests.support.console import Visitor

PASSWORD = "correct horse battery"
LOGIN = {"name": "bob", "password": PASSWORD}


async def test_times_are_shown_in_the_chosen_zone(store: Store, ada: Visitor) -> None:
    url = "https://example.org/feed"
    channel = Channel(channel_id(url), url, created_s=1_750_000_000.0)
    await store.channels.create(channel, Snapshot(Validators(), b"", "", ""), [], 1.0)
    page = (await ada.get(f"/channels/{channel.id}"))[1]
    assert 'title="15 Jun 2025, 15:06:40 UTC">15 Jun 2025<' in page
    assert await ada.post("/settings/zone", zone="tokyo") == (303, "/settings?done=zone")
    page = (await ada.get(f"/channels/{channel.id}"))[1]
    assert 'title="16 Jun 2025, 00:06:40 JST">16 Jun 2025<' in page
    assert 'data-zone="Asia/Tokyo"' in (await ada.get("/"))[1]
    assert re.search(r"The time there is [^<]* JST\.", (await ada.get("/settings"))[1])


async def test_the_audit_log_shows_absolute_times(ada: Visitor) -> None:
    await ada.post("/settings/zone", zone="Asia/Tokyo")
    assert " JST</time>" in (await ada.get("/log"))[1]


@pytest.mark.parametrize(("words", "answer"), [("nowhere", "is not a time zone"), ("", "Enter a time zone")])
async def test_an_invalid_zone_is_refused(ada: Visitor, words: str, answer: str) -> None:
    status, page = await ada.post("/settings/zone", zone=words)
    assert (status, answer in page) == (422, True)


async def test_the_browsers_zone_is_stored_at_the_first_login_only(store: Store, eve: Visitor) -> None:
    account = Account(await Passwords().hash(PASSWORD), 0.0)
    assert await store.accounts.change("bob", account, {})

    async def zone_after(offered: str) -> str:
        assert (await eve.post("/login", **LOGIN, zone=offered))[0] == 303
        held = await store.accounts.get("bob")
        assert held is not None
        return held.zone

    assert await zone_after("<b>Mars</b>") == ""
    assert await zone_after("Asia/Tokyo") == "Asia/Tokyo"
    assert await zone_after("Europe/Berlin") == "Asia/Tokyo"
