"""Pauses, filters, intervals and quiet times of users, which apply at once and lose no entry.

Erasure and invitations.
"""

import asyncio
import itertools
from functools import partial

import pytest

from bots.bot import Bot
from bots.delivery.mutes_and_filters import MAX_PAGES
from bots.delivery.notification_intervals import MAX_DUE_ITEMS
from service.feeds.canonical_urls import page_url
from service.feeds.entries.duplicate_articles import hash_version
from service.feeds.entries.version_parts import VersionParts
from service.model import Change, Channel, Entry
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from tests.contract.test_erasure import traces
from tests.support.bot_in_process import JumpingClock, Person, serving, tell
from tests.support.channels import change, make_channel
from tests.support.chat import ChatClient, Received
from tests.support.waiting import until, until_so

pytestmark = pytest.mark.parametrize("login", ["component"])


async def subscribed(store: Store, people: list[ChatClient], name: str = "feed") -> Channel:
    """Return a channel to which these users are subscribed."""
    channel = await make_channel(store, f"https://example.org/{name}")
    for person in people:
        await store.subscriptions.subscribe(person.jid, channel.id)
    return channel


@pytest.mark.usefixtures("bot")
async def test_a_pause_ends_with_one_message_about_all_versions(person: Person, store: Store) -> None:
    alice, bob = await asyncio.gather(person(), person())
    channel = await subscribed(store, [alice, bob])
    assert "is paused" in await alice.say("pause #1")
    for version in range(1, 9):
        await tell(store, [alice, bob], channel, f"k{version}", base=version)
    await bob.wait_for(lambda message: "Entry k8" in message.body)
    assert not alice.notifications
    assert "8 updates" in await alice.say("resume #1")
    message = await alice.wait_for(lambda message: "Entry k1" in message.body)
    assert all(f"Entry k{version}" in message.body for version in range(1, 9))
    await tell(store, [alice, bob], channel, "later", base=9)
    await alice.wait_for(lambda message: "Entry later" in message.body)
    assert len(alice.notifications) == 2


@pytest.mark.usefixtures("bot")
async def test_a_filter_applies_to_all_versions_of_a_pause(person: Person, store: Store) -> None:
    alice = await person()
    channel = await subscribed(store, [alice])
    await alice.say("filter #1 deny crypto")
    await alice.say("pause #1")
    for version in range(1, 5):
        title = "Crypto" if version % 2 else "Garden"
        entry = Entry(f"k{version}", f"{title} news {version}", f"https://example.org/{version}")
        delta = await change(store, channel, Change("addition", entry), base=version)
        await tell_delta(store, alice, channel, delta.version)
    await alice.say("resume #1")
    message = await alice.wait_for(lambda message: "Garden news 2" in message.body)
    assert "Garden news 4" in message.body
    assert "Crypto" not in message.body


@pytest.mark.usefixtures("bot")
async def test_a_filter_applies_at_once_and_only_to_its_subscription(person: Person, store: Store) -> None:
    alice = await person()
    one = await subscribed(store, [alice], "one")
    other = await subscribed(store, [alice], "other")
    assert "1. deny crypto" in await alice.say("filter #1 deny crypto")
    both = [
        Change("addition", Entry("c", "Crypto news of the day", "https://example.org/c")),
        Change("addition", Entry("d", "Garden news of the day", "https://example.org/d")),
    ]
    for channel in (one, other):
        delta = await change(store, channel, *both)
        await tell_delta(store, alice, channel, delta.version)
    await alice.wait_for(lambda message: "Garden" in message.body)
    await alice.wait_for(lambda message: "Crypto" in message.body)
    told = "\n\n".join(message.body for message in alice.notifications)
    assert told.count("Crypto news") == 1
    await alice.say("filter #1 off")
    delta = await change(store, one, Change("addition", Entry("e", "More crypto", "https://example.org/e")), base=2)
    await tell_delta(store, alice, one, delta.version)
    await alice.wait_for(lambda message: "More crypto" in message.body)


@pytest.mark.usefixtures("bot")
async def test_a_condition_is_told_each_time_it_becomes_true(person: Person, store: Store) -> None:
    alice, bob = await asyncio.gather(person(), person())
    channel = await make_channel(store, page_url("https://example.org/prices", "css=.price"), kind="page")
    for who in (alice, bob):
        await store.subscriptions.subscribe(who.jid, channel.id)
    assert "when: < 20" in await alice.say("set #1 when < 20")
    for base, (old, new) in enumerate(itertools.pairwise(["25 €", "19 €", "18 €", "22 €", "19.50 €", "30 €"]), 1):
        entry = Entry(f"k{base}", summary=new, link="https://example.org/prices")
        delta = await change(store, channel, Change("replacement", entry, 1, old), base=base)
        for who in (alice, bob):
            await tell_delta(store, who, channel, delta.version)
        await bob.wait_for(partial(says, new))
    await alice.wait_for(lambda message: "19.50 €" in message.body)
    told = "\n".join(message.body for message in alice.notifications)
    assert len(alice.notifications) == 2
    assert "25 €" in told
    assert not any(price in told for price in ("18 €", "30 €"))
    assert "when: off" in await alice.say("set #1 when off")
    delta = await change(store, channel, Change("replacement", Entry("z", summary="31 €"), 1, "30 €"), base=6)
    await tell_delta(store, alice, channel, delta.version)
    await alice.wait_for(lambda message: "31 €" in message.body)


def says(text: str, message: Received) -> bool:
    return text in message.body


async def tell_delta(store: Store, who: ChatClient, channel: Channel, version: int) -> None:
    delta = await store.channels.delta(channel.id, version)
    assert delta is not None
    await store.outbox.enqueue([user_id(who.jid)], channel.id, version, 2_000.0, hash_version(delta))


async def test_settings_apply_after_a_takeover(store: Store, person: Person, settings: Settings) -> None:
    alice, bob = await asyncio.gather(person(), person())
    channel = await subscribed(store, [alice, bob])
    silent = await subscribed(store, [alice], "silent")
    async with serving(settings, store):
        assert "title: My news" in await alice.say("set #1 title My news")
        assert "format: $channel" in await alice.say("set all format $channel: $title <$link>")
        assert "You'll get nothing from *A feed* (#2)" in await alice.say("set #2 mute on")
    async with serving(settings, store):
        await tell(store, [alice], silent, "unheard")
        await tell(store, [alice, bob], channel, "new")
        message = await alice.wait_for(lambda message: "Entry new" in message.body)
        assert message.body == "My news: Entry new <https://example.org/new>"
        assert (await bob.wait_for(lambda message: "Entry new" in message.body)).body.startswith("*A feed*\n")
        assert not await store.outbox.count_waiting() or [m for m in alice.notifications if "unheard" in m.body] == []


async def test_an_erased_user_can_start_again(bot: Bot, person: Person, store: Store) -> None:
    alice = await person()
    await alice.befriend()
    await until_so(lambda: alice.sees_the_bot == "both", "they are each other's contacts")
    channel = await subscribed(store, [alice])
    await alice.say("set #1 title Mine")
    await tell(store, [alice], channel, "new")
    await alice.wait_for(lambda message: "Entry new" in message.body)
    await until(lambda: nothing_waits(store), "its receipt is in")
    assert "Delete everything" in await alice.say("forget me")
    assert "I haven't changed anything" in await alice.say("no")
    await alice.say("forget me")
    assert "deleted everything" in await alice.say("yes")
    assert await traces(store, alice.jid) == []
    await until_so(lambda: alice.sees_the_bot == "none", "and are no contacts any more")
    if bot.connection.is_account:
        roster = await bot.connection.request(bot.connection.address, "get", "<query xmlns='jabber:iq:roster'/>")
        assert not list(roster.iter("{jabber:iq:roster}item"))
    await tell(store, [alice], channel, "late", base=2)
    assert "Hello!" in await alice.say("status")
    assert not [message for message in alice.notifications if "late" in message.body]


async def nothing_waits(store: Store) -> bool:
    return not await store.outbox.count_waiting()


async def test_an_uninvited_user_gets_one_reply_and_no_record(store: Store, person: Person, settings: Settings) -> None:
    private = settings.model_copy(update={"who_may_use": "invited", "allowed_users": ("example.org",)})
    alice = await person()
    async with serving(private, store):
        assert await alice.say("list") == await alice.say("https://example.com/") == await alice.say("pause")
        assert (await store.users.get(alice.jid)).welcomed is False
        assert "wrong or no longer valid" in await alice.say("invite nonsense")
        assert "Welcome" in await alice.say(f"invite {await store.invitations.create(1, 60.0)}")
        assert "no subscriptions" in await alice.say("list")


@pytest.mark.usefixtures("bot")
async def test_messages_to_a_busy_user_wait_until_they_are_available(person: Person, store: Store) -> None:
    alice, bob = await asyncio.gather(person(), person())
    channel = await subscribed(store, [alice, bob])
    assert "if I send you a contact request, please accept it" in await alice.say("quiet presence")
    busy = "<show>dnd</show></presence>"
    # The server tells whom alice accepts what she has told everybody: that may come after what she tells the bot.
    alice.send_raw(f"<presence>{busy}")
    alice.send_raw(f"<presence to='{alice.bot_jid}'>{busy}")
    await alice.say("status")
    await tell(store, [alice, bob], channel, "held")
    await bob.wait_for(lambda message: "Entry held" in message.body)
    assert not [message for message in alice.notifications if "held" in message.body]
    alice.send_raw("<presence/>")
    alice.send_raw(f"<presence to='{alice.bot_jid}'/>")
    await alice.wait_for(lambda message: "Entry held" in message.body)
    assert "accept" not in await alice.say("quiet off")


async def test_a_returning_user_gets_a_greeting_and_a_summary(person: Person, store: Store, settings: Settings) -> None:
    alice = await person()
    channel = await subscribed(store, [alice])
    await store.users.mark_welcomed(alice.jid)
    await store.pauses.suspend_unreachable(alice.jid, [channel.id])
    async with serving(settings, store):
        for version, key in enumerate(("one", "two"), start=1):
            await tell(store, [alice], channel, key, base=version)
        assert (await alice.say("status")).startswith("Welcome back!")
        told = await alice.wait_for(lambda message: "Entry two" in message.body)
        assert "Entry one" in told.body
        assert not (await alice.say("status")).startswith("Welcome back!")


async def all_are_received(store: Store, person: ChatClient) -> None:
    """Wait until the bot has the receipts for everything it has sent; otherwise the next bot waits for them first."""

    async def is_so() -> bool:
        return not any((await store.outbox.in_flight([user_id(person.jid)])).values())

    await until(is_so, "all receipts have arrived")


async def test_an_interval_delays_only_messages_after_the_first(
    person: Person, store: Store, settings: Settings
) -> None:
    alice = await person()
    spaced, other = await subscribed(store, [alice], "spaced"), await subscribed(store, [alice], "other")
    clock = JumpingClock()
    async with serving(settings, store, clock):
        assert "interval: at most once an hour" in await alice.say("set #1 interval hourly")
        await tell(store, [alice], spaced, "first")
        await alice.wait_for(lambda message: "Entry first" in message.body)
        for version in range(2, 5):
            await tell(store, [alice], spaced, f"held{version}", base=version)
        await tell(store, [alice], other, "free")
        await alice.wait_for(lambda message: "Entry free" in message.body)
        assert not [message for message in alice.notifications if "held" in message.body]
        await all_are_received(store, alice)
    clock.ahead_s = 3_601.0  # and by then another bot serves her
    async with serving(settings, store, clock):
        message = await alice.wait_for(lambda message: "Entry held2" in message.body)
        assert "held3" in message.body
        assert "held4" in message.body
        await all_are_received(store, alice)
    clock.ahead_s = 0.0
    async with serving(settings, store, clock):
        await tell(store, [alice], spaced, "last", base=5)
        await tell(store, [alice], other, "more", base=2)
        await alice.wait_for(lambda message: "Entry more" in message.body)
        assert not [message for message in alice.notifications if "Entry last" in message.body]
        assert "interval: right away" in await alice.say("set #1 interval off")
        await alice.wait_for(lambda message: "Entry last" in message.body)


async def test_the_digest_of_a_folder_holds_back_only_its_entries(
    person: Person, store: Store, settings: Settings
) -> None:
    alice = await person()
    news, other = await subscribed(store, [alice], "news"), await subscribed(store, [alice], "other")
    clock = JumpingClock()
    async with serving(settings, store, clock):
        await alice.say("set #1 folder News")
        assert "digest: every Monday at 08:00" in await alice.say("digest News weekly")
        for version in range(1, 4):
            await tell(store, [alice], news, f"held{version}", base=version)
        await tell(store, [alice], other, "free")
        await alice.wait_for(lambda message: "Entry free" in message.body)
        assert not [message for message in alice.notifications if "held" in message.body]
        await all_are_received(store, alice)
    clock.ahead_s = 7 * 86_400.0  # and by then another bot serves her
    async with serving(settings, store, clock):
        message = await alice.wait_for(lambda message: "Entry held1" in message.body)
        assert message.body.index("held1") < message.body.index("held2") < message.body.index("held3")
        await all_are_received(store, alice)
    clock.ahead_s = 0.0
    async with serving(settings, store, clock):
        await tell(store, [alice], news, "last", base=4)
        await tell(store, [alice], other, "more", base=2)
        await alice.wait_for(lambda message: "Entry more" in message.body)
        assert not [message for message in alice.notifications if "Entry last" in message.body]
        await alice.say("set #1 folder off")
        await alice.wait_for(lambda message: "Entry last" in message.body)


async def test_a_folder_can_be_sent_at_once_although_the_user_has_a_digest(
    person: Person, store: Store, settings: Settings
) -> None:
    alice = await person()
    news, other = await subscribed(store, [alice], "news"), await subscribed(store, [alice], "other")
    async with serving(settings, store):
        await alice.say("digest weekly")
        await alice.say("set #1 folder News")
        assert "digest: right away" in await alice.say("digest News off")
        await tell(store, [alice], other, "held")
        await tell(store, [alice], news, "urgent")
        await alice.wait_for(lambda message: "Entry urgent" in message.body)
        assert not [message for message in alice.notifications if "held" in message.body]
        await alice.say("digest off")
        await alice.wait_for(lambda message: "Entry held" in message.body)


@pytest.mark.usefixtures("bot")
async def test_filters_and_pauses_of_a_folder_apply_to_its_subscriptions(person: Person, store: Store) -> None:
    alice = await person()
    news, other = await subscribed(store, [alice], "news"), await subscribed(store, [alice], "other")
    ad = Change("addition", Entry("c", "Buy", "https://ads.example/c", "A summary", ("Ann",), ("sponsored",)))
    await change(store, other, ad)
    await alice.say("set #1 folder News")
    await alice.say("set #2 folder News")
    preview = await alice.say("filter News deny title:sell OR (link:x.example")
    assert "Parentheses aren't supported" in preview
    preview = await alice.say("filter News deny tag:sponsored link:ads.example -author:john")
    assert "It would have hidden 1 of the latest 3 entries:\n• Buy" in preview
    for channel in (news, other):
        base = 2 if channel is other else 1
        garden = Change("addition", Entry("d", f"Garden {channel.id[:4]}", "https://example.org/d"))
        delta = await change(store, channel, ad, garden, base=base)
        await tell_delta(store, alice, channel, delta.version)
        await alice.wait_for(partial(says, f"Garden {channel.id[:4]}"))
    assert not [message for message in alice.notifications if "Buy" in message.body]
    assert "*News* (2) is paused" in await alice.say("pause News")
    await tell(store, [alice], news, "missed", base=2)
    assert "1 update" in await alice.say("resume News")
    await alice.wait_for(lambda message: "Entry missed" in message.body)


async def test_many_entries_that_wait_for_a_digest_do_not_delay_others(
    person: Person, store: Store, settings: Settings
) -> None:
    alice = await person()
    news, other = await subscribed(store, [alice], "news"), await subscribed(store, [alice], "other")
    clock = JumpingClock()
    async with serving(settings, store, clock):
        await alice.say("set #1 folder News")
        await alice.say("digest News weekly")
        for version in range(2, 3 + MAX_PAGES * MAX_DUE_ITEMS):
            await store.outbox.enqueue([user_id(alice.jid)], news.id, version, 2_000.0, VersionParts())
        for base, key in enumerate(("one", "two", "three"), 1):
            await tell(store, [alice], other, key, base=base)
            await alice.wait_for(partial(says, f"Entry {key}"))
        waiting = await store.outbox.queued_items({user_id(alice.jid): ""}, 2_000)
        assert len(waiting[0]) == 1 + MAX_PAGES * MAX_DUE_ITEMS
    async with serving(settings, store, clock):
        await tell(store, [alice], other, "four", base=4)
        await alice.wait_for(partial(says, "Entry four"))
