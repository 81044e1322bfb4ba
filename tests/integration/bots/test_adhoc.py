"""Ad-hoc commands on a real Prosody, used as in a client's menu."""

import asyncio

import pytest
from slixmpp.exceptions import IqError

from bots.bot import Bot
from bots.commands.verb_synonyms import VERBS
from bots.sessions import adhoc_session
from service.feeds.canonical_urls import channel_id
from service.model import FeedLink
from service.store import Store
from service.store.coordination.worker_requests import ProbeReply
from tests.support.bot_in_process import Person
from tests.support.channels import make_channel
from tests.support.client_software import Errand, software, where
from tests.support.scripted_worker import scripted_worker

FEED, OTHER = "https://example.org/feed", "https://example.org/other"


@pytest.fixture
def at(bot: Bot) -> str:
    """Return the JID that receives the bot's ad-hoc commands."""
    return where(bot)


async def test_every_command_is_listed_and_opens_a_form(at: str, person: Person) -> None:
    alice = await person()
    items = await software(alice).plugin["xep_0050"].get_commands(at, timeout=10)
    listed = {node: name for _, node, name in items["disco_items"]["items"]}
    assert set(listed) == set(VERBS)
    assert listed["subscribe"] == "Subscribe to a feed or page"
    for node in listed:
        command = await Errand(alice, at, node).step()
        assert command["status"] in ("executing", "completed"), node


async def test_a_feed_is_subscribed_listed_and_unsubscribed_by_forms(at: str, person: Person, store: Store) -> None:
    alice = await person()
    errand = Errand(alice, at, "subscribe")
    assert set((await errand.step())["form"].get_fields()) == {"url", "selector", "when", "credential"}
    async with scripted_worker(store, {FEED: None}):
        done = await errand.step("complete", url=FEED)
    assert (done["status"], errand.note(done)[0]) == ("completed", "info")
    assert "Subscribed to *A feed* (#1)" in errand.note(done)[1]
    assert [held.channel for held in await store.subscriptions.of_user(alice.jid)] == [channel_id(FEED)]
    assert "#1 A feed" in Errand.note(await Errand(alice, at, "list").step())[1]
    leaving = Errand(alice, at, "unsubscribe")
    offered = (await leaving.step())["form"].get_fields()["channel"]["options"]
    assert [(option["value"], option["label"]) for option in offered] == [("#1", "#1 A feed"), ("all", "All of them")]
    assert "Unsubscribed" in Errand.note(await leaving.step("complete", channel=["#1"]))[1]
    assert not await store.subscriptions.of_user(alice.jid)


async def test_unsubscribing_from_all_requires_a_confirmation(at: str, person: Person, store: Store) -> None:
    alice = await person()
    for number in range(4):
        channel = await make_channel(store, f"https://example.org/{number}")
        await store.subscriptions.subscribe(alice.jid, channel.id)
    some = Errand(alice, at, "unsubscribe")
    await some.step()
    words = Errand.note(await some.step("complete", channel=["#1", "#3"]))[1]
    assert words.count("Unsubscribed") == 2
    everything = Errand(alice, at, "unsubscribe")
    await everything.step()
    asked = await everything.step("complete", channel=["all"])
    assert "End both of your subscriptions" in asked["form"]["instructions"]
    assert "I haven't changed anything" in Errand.note(await everything.step("complete", answer="0"))[1]
    assert len(await store.subscriptions.of_user(alice.jid)) == 2


async def test_several_feeds_are_offered_in_the_next_form(at: str, person: Person, store: Store) -> None:
    alice = await person()
    script = {
        "https://example.org/": ProbeReply(choices=(FeedLink(FEED, "News"), FeedLink(OTHER, "Other"))),
        OTHER: None,
    }
    async with scripted_worker(store, script):
        errand = Errand(alice, at, "subscribe")
        await errand.step()
        asked = await errand.step("complete", url="example.org")
        assert asked["status"] == "executing"
        done = await errand.step("complete", answer="2")
    assert "Subscribed" in errand.note(done)[1]
    assert [held.channel for held in await store.subscriptions.of_user(alice.jid)] == [channel_id(OTHER)]


async def test_errors_are_shown_in_the_form_again(at: str, person: Person) -> None:
    alice = await person()
    errand = Errand(alice, at, "quiet")
    await errand.step()
    again = await errand.step("complete", hours="late", days=["mon"])
    assert (again["status"], errand.note(again)[0]) == ("executing", "error")
    assert again["form"].get_values()["hours"] == "late"
    done = await errand.step("complete", hours="22:00-07:00", days=["mon", "tue"])
    assert "Monday and Tuesday" in errand.note(done)[1]


async def test_a_form_shown_again_selects_only_subscriptions_whose_command_failed(
    at: str, person: Person, store: Store
) -> None:
    alice = await person()
    for number in range(2):
        channel = await make_channel(store, f"https://example.org/{number}")
        await store.subscriptions.subscribe(alice.jid, channel.id)
    errand = Errand(alice, at, "unsubscribe")
    await errand.step()
    again = await errand.step("complete", channel=["#1", "#9", "#2"])
    assert again["status"] == "executing"
    assert again["form"].get_values()["channel"] == ["#9"]


@pytest.fixture
def one_errand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit bots to one ad-hoc session."""
    monkeypatch.setattr(adhoc_session, "MAX_SESSIONS", 1)


@pytest.mark.usefixtures("one_errand")
async def test_a_session_of_another_user_or_an_expired_one_is_refused(at: str, person: Person) -> None:
    alice, eve = await asyncio.gather(person(), person())
    first, second = Errand(alice, at, "subscribe"), Errand(alice, at, "timezone")
    await first.step()
    await second.step()
    stolen = Errand(eve, at, "timezone")
    stolen.session = second.session
    for errand in (first, stolen):
        with pytest.raises(IqError) as refused:
            await errand.step("complete", words="Berlin")
        assert refused.value.condition == "not-allowed"
    assert (await second.step("cancel"))["status"] == "canceled"


async def test_unknown_commands_and_actions_are_refused(at: str, person: Person) -> None:
    alice = await person()
    with pytest.raises(IqError) as unknown:
        await Errand(alice, at, "delete-user").step()
    assert unknown.value.condition == "item-not-found"
    errand = Errand(alice, at, "timezone")
    await errand.step()
    with pytest.raises(IqError) as strange:
        await errand.step("prev")
    assert strange.value.condition == "bad-request"
    assert "Berlin" in errand.note(await errand.step("complete", words="Berlin"))[1]
