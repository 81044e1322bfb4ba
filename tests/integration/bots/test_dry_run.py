"""Dry runs of commands and previews of messages: they equal the bot's real replies and change nothing."""

import contextlib
from typing import Any

import pytest

from service.errors import NoWorker
from service.model import Channel, Entry
from service.store import Store
from service.store.client import keys
from service.store.coordination.host_blocklist import HostBlock
from tests.support.bot_in_process import Person
from tests.support.channels import make_channel
from tests.support.redis_contents import redis_contents
from tests.support.scripted_worker import scripted_worker
from tests.support.waiting import until

pytestmark = [pytest.mark.usefixtures("bot"), pytest.mark.parametrize("login", ["component"])]

FEED, OTHER = "https://example.org/feed", "https://example.net/feed"
COMMANDS = (
    *("list", "help", "show #1", "why #1", "status", f"subscribe {OTHER}", "pause #1", "resume", "set #1 title Other"),
    *("filter #1 deny tea", "quiet 22:00-07:00", "digest daily 08:00", "timezone Europe/Berlin", "language de"),
    *("list folders", "mute News", "digest News daily 08:00", "filter News deny tea", "pause News"),
    *("watch tag=python", "unwatch #1", "find tag=python", "export", "unsubscribe #1", "enter abc", "nonsense"),
)


async def _held(store: Store) -> dict[bytes, Any]:
    """Return all data in Redis, without counters and waiting requests."""
    found: dict[bytes, Any] = {}
    for key, value in (await redis_contents(store)).items():
        passing = (
            b":rate:",
            b":identity",
            b"{q:",
            b":answers",
            b":asked",
            b"{r}",
            b"{n:",
            b"{l:",
            b"{m:",
            b"{mx}",
            b"{d}:bots",
            b"{d}:unread",
        )
        if not any(part in key for part in passing):
            found[key] = value
    return found


async def _answered(store: Store, jid: str, *said: str) -> tuple[list[str], list[str]]:
    """Return the replies to the last command, and its effects."""

    async def there() -> bool:
        return bool(await store.redis.call("EXISTS", keys.BOT_AVAILABLE))

    await until(there, "the bot takes questions")
    line = (await store.bot_requests.dry_run(jid, said))[-1]
    return list(line.replies), list(line.effects)


async def test_a_dry_run_returns_the_bots_replies_and_changes_nothing(person: Person, store: Store) -> None:
    alice = await person()
    await make_channel(store, OTHER)
    async with scripted_worker(store, {FEED: None}):
        await alice.say(FEED)
        await alice.say("set #1 folder News")

        async def settled() -> bool:
            ((_, sends_receipts),) = await store.users.recipients([keys.user_id(alice.jid)])
            return sends_receipts and not await store.inbound_log.unanswered_users()

        await until(settled, "the bot knows that she sends receipts")
        before = await _held(store)
        rehearsed = {command: await _answered(store, alice.jid, command) for command in COMMANDS}
        assert await _held(store) == before
        for command in ("list", "show #1", "status", "help", "export", "filter News deny tea", f"subscribe {OTHER}"):
            assert rehearsed[command][0][0] == await alice.say(command), command
    assert rehearsed["list"][1] == []
    assert rehearsed[f"subscribe {OTHER}"][1] == ["Subscribe the user to A feed."]
    assert rehearsed["unsubscribe #1"][1] == ["Unsubscribe the user from A feed."]
    assert rehearsed["pause #1"][1] == ["Pause 1 subscriptions."]
    assert rehearsed["watch tag=python"][1] == ["Save this search."]
    assert rehearsed["pause News"][1] == ["Pause 1 subscriptions."]
    assert rehearsed["digest News daily 08:00"][1] == ["Change the preferences for a folder."]
    assert rehearsed["set #1 title Other"][1] == ["Change the preferences for #1."]


async def test_the_next_command_answers_a_question(person: Person, store: Store) -> None:
    alice = await person()
    async with scripted_worker(store, {FEED: None}):
        await alice.say(FEED)
    (said,), effects = await _answered(store, alice.jid, "forget me", "yes")
    assert "deleted everything" in said
    assert effects == ["Delete all data of the user, except restrictions by admins."]
    assert len(await store.subscriptions.of_user(alice.jid)) == 1


async def test_a_dry_run_shows_welcomes_host_blocks_and_suspensions(person: Person, store: Store) -> None:
    (said,), _ = await _answered(store, "new@example.org", "status")
    assert said.startswith("Hello! I'm Coronet")
    assert not (await store.users.get("new@example.org")).welcomed
    alice = await person()
    await alice.say("status")
    await make_channel(store)
    await store.blocked_hosts.add("example.org", HostBlock("ada", 1.0))
    (said,), effects = await _answered(store, alice.jid, FEED)
    assert "example.org is blocked here by an admin." in said
    assert effects == []
    await store.people.set_suspended(keys.user_id(alice.jid), suspended=True)
    assert await _answered(store, alice.jid, "list") == ([], ["No reply, because the user is suspended."])


async def test_a_preview_equals_the_message_to_subscribers(store: Store) -> None:
    channel = await make_channel(store, FEED)

    async def drafted() -> str:
        with contextlib.suppress(NoWorker):  # it has only just begun to take questions
            return await store.bot_requests.preview_message(channel, await store.channels.latest(channel.id, 1))
        return ""

    assert await until(drafted, "the bot drafts") == f"*A feed*\nFirst\n{FEED}/1"


async def test_a_channel_that_does_not_exist_can_be_previewed(store: Store) -> None:
    channel, seen = Channel("a" * 40, FEED, "A *new* feed"), (Entry("k", "First", OTHER), Entry("l", "Before"))

    async def drafted() -> str:
        with contextlib.suppress(NoWorker):
            return await store.bot_requests.preview_message(channel, seen)
        return ""

    said = await until(drafted, "the bot drafts")
    assert "First" in said
    assert OTHER in said
    assert "Before" not in said
    assert await store.bot_requests.preview_message(channel, ()) == ""
