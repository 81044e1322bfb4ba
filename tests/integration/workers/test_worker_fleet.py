"""Several real workers: published entries reach the outboxes of subscribers once, although workers die."""

import contextlib
import time
from collections import Counter
from itertools import count, pairwise
from types import SimpleNamespace

import pytest

from service import clock
from service.corona.optimizer.poll_explanation import PollExplanation
from service.embedded.sample_publisher import SamplePublisher
from service.errors import (
    AssignmentPending,
    BrokenFeed,
    EmptyBody,
    HostBlocked,
    LimitReached,
    NoWorker,
    PublisherError,
    TooLarge,
)
from service.model import Channel
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from service.store.coordination.host_blocklist import HostBlock
from service.store.coordination.worker_inboxes import InboxMessage
from tests.integration.workers.conftest import StartWorker
from tests.support.channels import count_channels
from tests.support.waiting import until

ALICE = "alice@localhost"
UID = keys.user_id(ALICE)


async def nodes_in_the_ring(store: Store, number: int) -> None:
    async def there() -> bool:
        return len(await store.ring.nodes()) == number

    await until(there, f"{number} nodes in the ring")


async def subscribed(store: Store, url: str) -> Channel:
    """Subscribe Alice as the bot does: on a slow machine the channel may become dormant before she is counted."""
    probed = await store.worker_requests.probe(url)
    assert probed.channel is not None
    await store.subscriptions.subscribe(ALICE, probed.channel.id)
    await store.worker_requests.announce_channel(probed.channel.id)
    channel = await store.channels.get(probed.channel.id)
    assert channel is not None
    if channel.dormant:
        await store.worker_requests.probe(url)
    return channel


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
async def test_versions_and_polls_of_a_worker_with_a_wrong_clock_have_the_stores_time(
    store: Store,
    publisher: SamplePublisher,
    start_worker: StartWorker,
    monkeypatch: pytest.MonkeyPatch,
    ahead_s: float,
) -> None:
    wrong = SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() + ahead_s)
    monkeypatch.setattr(clock, "time", wrong)
    await start_worker()
    await nodes_in_the_ring(store, 1)
    channel = await subscribed(store, publisher.feed_url())
    await publisher.publish("The second")

    async def is_stored() -> bool:
        return bool(await store.channels.delta(channel.id, 2) and await store.channels.polls(channel.id, 1))

    await until(is_stored, "the version and the poll are stored")
    delta, (poll,) = await store.channels.delta(channel.id, 2), await store.channels.polls(channel.id, 1)
    assert delta is not None
    assert max(abs(at_s - time.time()) for at_s in (delta.detected_s, poll.at_s)) < 1_000


async def test_malformed_messages_do_not_stop_a_node(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker
) -> None:
    await start_worker()
    await nodes_in_the_ring(store, 1)
    (node,) = await store.ring.nodes()
    kinds = ("ask", "fanout", "peer", "push", "share")
    await store.node_inboxes.send([(node.id, InboxMessage(kind, "", b"\xff")) for kind in kinds])
    await subscribed(store, publisher.feed_url())
    assert [each.id for each in await store.ring.nodes()] == [node.id]


async def test_a_blocked_host_is_not_polled_until_it_is_unblocked(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker
) -> None:
    await start_worker()
    await nodes_in_the_ring(store, 1)
    channel = await subscribed(store, publisher.feed_url())

    async def polled_since(at_s: float) -> list[float]:
        return [poll.at_s for poll in await store.channels.polls(channel.id, 20) if poll.at_s > at_s]

    async def refused() -> bool:
        with contextlib.suppress(LimitReached):
            try:
                await store.worker_requests.poll_now(channel.id)
            except HostBlocked:
                return True
        return False

    async def planned() -> PollExplanation | None:
        with contextlib.suppress(AssignmentPending):
            return await store.worker_requests.explain(channel.id)
        return None

    before = await until(planned, "it is settled how it is polled")
    assert before is not None
    await until(lambda: polled_since(0.0), "it is polled")
    await store.blocked_hosts.add("127.0.0.1", HostBlock("ada", 1.0))
    await until(refused, "nobody asks the host any more")
    with pytest.raises(HostBlocked):
        await store.worker_requests.probe(publisher.feed_url(1))
    last_s = time.time()
    await store.blocked_hosts.remove("127.0.0.1")
    await until(lambda: polled_since(last_s), "it is polled again")
    after = await store.worker_requests.explain(channel.id)
    turns = (after.turns[0].next_poll_s - before.turns[0].next_poll_s) / before.interval_s
    assert turns == pytest.approx(round(turns), abs=1e-3), "at the moments at which it would have been polled anyway"


async def test_a_channel_of_a_node_without_a_lease_is_polled_again(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker
) -> None:
    await start_worker()
    await nodes_in_the_ring(store, 1)
    channel = await subscribed(store, publisher.feed_url())
    ghost = await store.ring.join("ghost", "", 3_600, lambda _: channel.id)
    await nodes_in_the_ring(store, 2)
    await store.redis.call("ZREM", keys.RING_LEASES, ghost.id)
    since_s = time.time()

    async def polled() -> bool:
        return any(poll.at_s > since_s for poll in await store.channels.polls(channel.id, 20))

    await until(polled, "it is polled again")
    assert ghost.id not in {node.id for node in await store.ring.nodes()}


async def delivered_titles(store: Store) -> list[str]:
    """Deliver Alice's outbox as the bot does; return the entries' titles."""
    titles = []
    for batch in (await store.outbox.claim([UID], 100, 0.0)).values():
        for item in batch.items:
            delta = await store.channels.delta(item.channel, item.version)
            assert delta is not None
            titles += [change.entry.title for change in delta.changes]
        await store.outbox.complete(done=[(UID, batch.message_id)])
    return titles


async def all_delivered(store: Store, expected: list[str]) -> list[str]:
    got: list[str] = []

    async def enough() -> bool:
        got.extend(await delivered_titles(store))
        return len(got) >= len(expected)

    await until(enough, f"{expected} in the outbox")
    return got


async def test_entries_published_after_a_subscription_are_queued_once_in_order(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker
) -> None:
    for _ in range(3):
        await start_worker()
    await nodes_in_the_ring(store, 3)
    channel = await subscribed(store, publisher.feed_url())
    assert channel.private
    assert [entry.title for entry in await store.channels.latest(channel.id, 5)] == ["The first"]
    got: list[str] = []
    for title in ("A", "B", "C"):
        await publisher.publish(title)
        got += await all_delivered(store, [title])
    assert got == ["A", "B", "C"]


async def test_when_a_node_dies_the_others_take_over_without_loss(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker
) -> None:
    workers = [await start_worker() for _ in range(3)]
    await nodes_in_the_ring(store, 3)
    await subscribed(store, publisher.feed_url())
    numbers = count(1)
    expected: list[str] = []
    got: list[str] = []
    for worker in workers[:2]:
        expected.append(f"Entry {next(numbers)}")
        await publisher.publish(expected[-1])
        worker.cancel()
        expected.append(f"Entry {next(numbers)}")
        await publisher.publish(expected[-1])
        got += await all_delivered(store, expected[len(got) :])
    assert got == expected
    await nodes_in_the_ring(store, 1)


async def test_a_channel_without_subscribers_becomes_dormant_and_wakes_up_silently(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.ownership.dormancy._EXPECTED_FOR_S", 0.0)
    await start_worker()
    await nodes_in_the_ring(store, 1)
    channel = await subscribed(store, publisher.feed_url())
    await store.subscriptions.unsubscribe(ALICE, channel.id)

    async def dormant() -> bool:
        now = await store.channels.get(channel.id)
        return now is not None and now.dormant

    await until(dormant, "the channel dozes")
    await publisher.publish("Missed by nobody")
    again = await subscribed(store, publisher.feed_url())
    assert not again.dormant
    assert (await store.channels.latest(channel.id, 1))[0].title == "Missed by nobody"
    await publisher.publish("News")
    assert await all_delivered(store, ["News"]) == ["News"]


async def test_probing_a_page_finds_its_feed(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker
) -> None:
    await start_worker()
    await nodes_in_the_ring(store, 1)
    probed = await store.worker_requests.probe(f"{publisher.url}/")
    assert probed.discovered
    assert probed.channel is not None
    assert probed.channel.url == publisher.feed_url()


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/bad/404", PublisherError),
        ("/bad/broken.xml", BrokenFeed),
        ("/bad/empty", EmptyBody),
        ("/bad/huge", TooLarge),
    ],
)
async def test_an_unusable_url_gets_an_error_and_creates_nothing(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker, path: str, error: type[Exception]
) -> None:
    await start_worker()
    await nodes_in_the_ring(store, 1)
    with pytest.raises(error):
        await store.worker_requests.probe(publisher.url + path)
    assert await count_channels(store) == 0


async def test_a_request_without_workers_fails_at_once(store: Store) -> None:
    with pytest.raises(NoWorker):
        await store.worker_requests.probe("https://example.org/feed")


async def test_a_requested_poll_is_recorded_before_the_reply(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker
) -> None:
    await start_worker()
    await nodes_in_the_ring(store, 1)
    channel = await subscribed(store, publisher.feed_url())
    for _ in range(3):
        result = await store.worker_requests.poll_now(channel.id)
        assert result in await store.channels.polls(channel.id, 9)


async def test_a_bot_with_a_wrong_clock_gets_replies(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start_worker()
    await nodes_in_the_ring(store, 1)
    wrong = SimpleNamespace(time=lambda: time.time() - 3600, monotonic=time.monotonic)
    monkeypatch.setattr("service.store.coordination.worker_requests.time", wrong)
    assert (await store.worker_requests.probe(publisher.feed_url())).channel is not None


async def test_polls_of_a_set_are_evenly_spaced_and_conditional(
    store: Store, publisher: SamplePublisher, start_worker: StartWorker, settings: Settings
) -> None:
    for _ in range(3):
        await start_worker()
    await nodes_in_the_ring(store, 3)
    channel = await subscribed(store, publisher.feed_url())

    async def settled() -> bool:
        # A poll that was planned before the last node joined is not put off: the rounds after it are even.
        polls = await store.channels.polls(channel.id, 9)
        return len(polls) == 9 and set(Counter(poll.node for poll in polls).values()) == {3}

    await until(settled, "three rounds of polls by three nodes")
    # A machine may stall, which makes polls late, never early: the less late of its last two tells a node's turn.
    interval_s = settings.poll_interval_s
    last = sorted(await store.channels.polls(channel.id, 6), key=lambda poll: poll.at_s)
    turns_s: dict[str, list[float]] = {}
    for poll in last:
        turns_s.setdefault(poll.node, []).append(poll.at_s - last[0].at_s)
    first_s = sorted(min(at_s - round_ * interval_s for round_, at_s in enumerate(turns)) for turns in turns_s.values())
    gaps = [later - earlier for earlier, later in pairwise([*first_s, first_s[0] + interval_s])]
    assert all(0.5 * interval_s / 3 < gap < 1.5 * interval_s / 3 for gap in gaps), gaps
    assert len(gaps) == 3
    assert all(poll.status == 304 for poll in await store.channels.polls(channel.id, 3))
