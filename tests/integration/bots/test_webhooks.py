"""Webhooks: what is sent in chat is also posted, signed; failures are repeated, reported and given up."""

from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from bots.bot import Bot
from service.feeds.entries.duplicate_articles import hash_version
from service.model import Change, Channel, Entry
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from service.store.client.keys import user_id
from service.store.coordination.host_blocklist import HostBlock
from service.store.delivery.webhooks import WebhookState
from tests.contract.test_erasure import traces
from tests.support.bot_in_process import JumpingClock, Person, serving, tell
from tests.support.channels import change, make_channel
from tests.support.chat import ChatClient
from tests.support.waiting import until, until_so
from tests.support.webhook_receiver import WebhookReceiver, receiving

pytestmark = pytest.mark.parametrize("login", ["component"])

DAY_S = 86_400.0


@pytest.fixture
def trial(settings: Settings) -> Settings:
    """Settings of a bot that may post to this machine."""
    return settings.model_copy(update={"allow_private": True, "console_public_url": "https://coronet.example/"})


@pytest_asyncio.fixture
async def hook() -> AsyncIterator[WebhookReceiver]:
    async with receiving() as receiver:
        yield receiver


async def connected(store: Store, client: ChatClient, hook: WebhookReceiver) -> Channel:
    """Return a channel to which a person with a webhook is subscribed."""
    channel = await make_channel(store)
    await store.subscriptions.subscribe(client.jid, channel.id)
    hook.secret = (await client.say(f"webhook {hook.url}")).split()[-1]
    assert hook.secret.startswith("whsec_")
    return channel


async def is_handled(store: Store, client: ChatClient) -> bool:
    """Return whether nothing waits for a person's webhook."""
    return await store.webhooks.queue_lengths([user_id(client.jid)]) == [0]


async def test_entries_are_posted_in_order_and_sent_in_chat(
    trial: Settings, store: Store, person: Person, hook: WebhookReceiver
) -> None:
    async with serving(trial, store):
        alice = await person()
        assert "no webhook" in await alice.say("webhook")
        channel = await connected(store, alice, hook)
        for version, key in enumerate(("one", "two", "three"), start=1):
            await tell(store, [alice], channel, key, base=version)
        await until_so(lambda: len(hook.accepted) == 3, "all are posted")
        assert hook.titles == ["Entry one", "Entry two", "Entry three"]
        assert len({message_id for message_id, _ in hook.accepted}) == 3
        assert not hook.refused
        await alice.wait_for(lambda message: "Entry three" in message.body)
        assert hook.url in await alice.say("webhook")
        await alice.say("webhook off")
        await tell(store, [alice], channel, "four", base=4)
        await alice.wait_for(lambda message: "Entry four" in message.body)
        assert len(hook.accepted) == 3
        assert await is_handled(store, alice)


async def test_mutes_and_filters_apply_and_quiet_hours_do_not(
    trial: Settings, store: Store, person: Person, hook: WebhookReceiver
) -> None:
    async with serving(trial, store):
        alice = await person()
        channel = await connected(store, alice, hook)
        await alice.say("quiet 00:00-24:00")
        await alice.say("filter #1 deny crypto")
        await tell(store, [alice], channel, "crypto", base=1)
        added = [Change("addition", Entry(key, f"Entry {key}")) for key in ("tea", "crypto2 crypto")]
        delta = await change(store, channel, *added, base=2)
        await store.outbox.enqueue([user_id(alice.jid)], channel.id, delta.version, 2_000.0, hash_version(delta))
        await until_so(lambda: hook.accepted, "it is posted")
        assert hook.titles == ["Entry tea"]
        await alice.say("mute #1")
        await tell(store, [alice], channel, "muted", base=3)
        await until(partial(is_handled, store, alice), "the muted entry is dropped")
        assert hook.titles == ["Entry tea"]
        assert not alice.notifications


async def test_after_a_failure_the_same_requests_are_repeated_in_order(
    trial: Settings, store: Store, person: Person, hook: WebhookReceiver
) -> None:
    clock = JumpingClock()
    hook.status = 500
    async with serving(trial, store, clock):
        alice = await person()
        channel = await connected(store, alice, hook)
        await tell(store, [alice], channel, "one", base=1)
        await tell(store, [alice], channel, "two", base=2)
        await until_so(lambda: hook.refused, "a request fails")
        await alice.wait_for(lambda message: "Entry two" in message.body)
        assert "500" in await until(lambda: failing(alice), "the failure is shown")
    hook.status = 200
    clock.ahead_s = 30.0
    async with serving(trial, store, clock):  # another process continues
        await until_so(lambda: len(hook.accepted) == 2, "both are posted")
    assert hook.titles == ["Entry one", "Entry two"]
    assert set(hook.refused) == {hook.accepted[0][0]}, "a request keeps its id, and the next one waits for it"


async def failing(client: ChatClient) -> str:
    text = await client.say("webhook")
    return text if "doesn't work" in text else ""


async def test_a_request_to_wait_is_honoured(
    trial: Settings, store: Store, person: Person, hook: WebhookReceiver
) -> None:
    hook.status, hook.headers = 503, {"Retry-After": "3600"}
    async with serving(trial, store):
        alice = await person()
        await tell(store, [alice], await connected(store, alice, hook), "one")
        await until(lambda: failing(alice), "the failure is recorded")
        webhook = await store.webhooks.get(user_id(alice.jid))
        assert webhook is not None
        assert webhook.state.next_s - webhook.state.failing_since_s == pytest.approx(3_600, abs=1)


async def test_items_that_fail_for_a_day_are_dead_letters_and_the_person_is_told_once(
    trial: Settings, store: Store, person: Person, hook: WebhookReceiver
) -> None:
    clock = JumpingClock()
    hook.status = 500
    async with serving(trial, store, clock):
        alice = await person()
        channel = await connected(store, alice, hook)
        await tell(store, [alice], channel, "one", base=1)
        await until(partial(has_failed_since, store, alice, 0.0), "a request fails")
        for base, days in ((2, 0.6), (3, 1.1), (4, 1.4)):
            clock.ahead_s = days * DAY_S
            before_s = clock.wall_s()
            await tell(store, [alice], channel, f"k{base}", base=base)
            if days < 1:
                await until(partial(has_failed_since, store, alice, before_s), "a request fails again")
            else:
                await until(partial(is_handled, store, alice), "what is older than a day is given up")
        told = await alice.wait_for(lambda message: "hasn't worked for a day" in message.body)
        assert hook.url in told.body
        letters, _ = await store.dead_letters.page()
        assert "webhook failed for a day" in letters[0].why
        assert sum("hasn't worked for a day" in message.body for message in alice.received) == 1


async def has_failed_since(store: Store, client: ChatClient, since_s: float) -> bool:
    """Return whether the failure of a request to a person's webhook has been stored since ``since_s`` (Unix s)."""
    webhook = await store.webhooks.get(user_id(client.jid))
    return webhook is not None and webhook.state.next_s > since_s


async def test_failures_long_after_earlier_ones_do_not_end_a_webhook(
    trial: Settings, store: Store, person: Person, hook: WebhookReceiver
) -> None:
    clock = JumpingClock()
    async with serving(trial, store, clock):
        alice = await person()
        channel = await connected(store, alice, hook)
        webhook = await store.webhooks.get(user_id(alice.jid))
        assert webhook is not None
        failed_s = clock.wall_s() - 20 * DAY_S
        earlier = WebhookState(9, failed_s, failed_s + DAY_S, "It failed.", is_reported=True)
        await store.webhooks.record(user_id(alice.jid), webhook, earlier)
        hook.status = 500
        await tell(store, [alice], channel, "one")
        await until_so(lambda: hook.refused, "a request fails")
        hook.status, clock.ahead_s = 200, 30.0
        await tell(store, [alice], channel, "two", base=2)
        await until_so(lambda: len(hook.accepted) == 2, "both are posted")


async def test_a_webhook_that_is_gone_is_ended(
    trial: Settings, store: Store, person: Person, hook: WebhookReceiver
) -> None:
    hook.status = 410
    async with serving(trial, store):
        alice = await person()
        await tell(store, [alice], await connected(store, alice, hook), "one")
        await alice.wait_for(lambda message: "I've ended your webhook" in message.body)

        async def is_gone() -> bool:
            return await store.webhooks.get(user_id(alice.jid)) is None

        await until(is_gone, "the webhook is deleted")
        assert len(hook.refused) == 1


async def test_private_addresses_blocked_hosts_and_redirects_are_refused(
    trial: Settings, settings: Settings, store: Store, person: Person, hook: WebhookReceiver
) -> None:
    alice = await person()
    async with serving(settings, store):
        assert "https" in await alice.say(f"webhook {hook.url}")
        await connected_to(store, alice, hook.url.replace("http:", "https:").replace("127.0.0.1", "127.0.0.2"))
        assert "not a public address" in await until(lambda: failing(alice), "the address is refused")
    async with serving(trial, store):
        hook.status, hook.headers = 307, {"Location": hook.url}
        await connected_to(store, alice, hook.url)
        assert "redirects" in await until(lambda: failing(alice), "the redirect is refused")
        assert len(hook.refused) == 1
        await store.blocked_hosts.add("127.0.0.1", HostBlock("ada", 0.0))
        await connected_to(store, alice, hook.url)
        assert "blocked" in await until(lambda: failing(alice), "the host is refused")
        assert len(hook.refused) == 1


async def test_a_request_takes_a_token_of_the_budget_of_its_site(trial: Settings, store: Store, person: Person) -> None:
    async with serving(trial, store):
        alice = await person()
        await connected_to(store, alice, "https://no-such-host.invalid/hook")
        await until(lambda: failing(alice), "the request fails")
        assert await store.redis.call("EXISTS", keys.site_budget("no-such-host.invalid"))


async def connected_to(store: Store, client: ChatClient, url: str) -> None:
    """Give a person a webhook, and queue an entry for it."""
    assert "whsec_" in await client.say(f"webhook {url}")
    channel = await make_channel(store)
    await store.subscriptions.subscribe(client.jid, channel.id)
    version = (await store.channels.get(channel.id)).version  # type: ignore[union-attr] # it was created
    await tell(store, [client], channel, f"k{version}", base=version)


async def test_forget_me_ends_the_webhook_and_the_feeds(
    trial: Settings, store: Store, person: Person, hook: WebhookReceiver
) -> None:
    hook.status = 500
    async with serving(trial, store):
        alice = await person()
        channel = await connected(store, alice, hook)
        assert "https://coronet.example/feeds/" in await alice.say("atom")
        await tell(store, [alice], channel, "one")
        await until_so(lambda: hook.refused, "a request fails")
        await alice.say("forget me")
        await alice.say("yes")
    assert await traces(store, alice.jid) == []


@pytest.mark.usefixtures("bot")
async def test_the_bot_says_what_is_missing(bot: Bot, person: Person) -> None:
    alice = await person()
    assert bot
    assert "console_public_url" in await alice.say("atom")
