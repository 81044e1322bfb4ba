"""The outbox: an article is delivered once per user, by one of their channels; an edit corrects its message."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.feeds.entries.version_parts import ArticleHashes, VersionParts
from service.model import Channel, ChannelId
from service.settings import Settings
from service.store import Store, open_store
from service.store.client import keys
from service.store.delivery.outbox import Batch, ClaimRules
from tests.support.channels import make_channel

ALICE = "alice@localhost"
UID = keys.user_id(ALICE)


def articles(*names: str, of: str = "") -> ArticleHashes:
    """Return articles at the positions from 0.

    Each has a hash of the channel ``of`` and a hash shared by all channels.
    """
    return tuple((n, (f"{of}:{name}".encode().ljust(8), name.encode().ljust(8))) for n, name in enumerate(names))


async def followed(store: Store, *names: str) -> list[Channel]:
    """Channels that Alice subscribes to."""
    found = [await make_channel(store, f"https://example.org/{name}") for name in names]
    for channel in found:
        await store.subscriptions.subscribe(ALICE, channel.id)
    return found


async def give(store: Store, channel: Channel, version: int, parts: VersionParts) -> None:
    await store.outbox.enqueue([UID], channel.id, version, 5.0, parts)


async def claim(store: Store, most: int = 20) -> Batch | None:
    return (await store.outbox.claim([UID], most, 6.0)).get(UID)


async def tell(store: Store, channel: Channel, version: int, parts: VersionParts) -> Batch:
    """Queue, claim and complete a version; return the batch."""
    await give(store, channel, version, parts)
    batch = await claim(store)
    assert batch is not None
    await store.outbox.complete(done=[(UID, batch.message_id)])
    return batch


def shown(batch: Batch | None) -> list[tuple[ChannelId, int, bool, tuple[int, ...]]]:
    return [(item.channel, item.version, item.edits, item.omitted or ()) for item in (batch.items if batch else ())]


async def test_news_and_edits_are_claimed_separately_and_in_order(store: Store) -> None:
    (channel,) = await followed(store, "a")
    for version, parts in (
        (2, VersionParts()),
        (3, VersionParts((), ())),
        (4, VersionParts(None, ())),
        (5, VersionParts()),
    ):
        await give(store, channel, version, parts)
    batches = [shown(await claim(store)) for _ in range(4)]
    assert [[(version, edits) for _, version, edits, _ in batch] for batch in batches] == [
        [(2, False), (3, False)],
        [(3, True), (4, True)],
        [(5, False)],
        [],
    ]


async def test_a_claim_states_whether_more_items_are_queued(store: Store) -> None:
    (channel,) = await followed(store, "a")
    for version in (2, 3, 4):
        await give(store, channel, version, VersionParts())
    batches = [await claim(store, most=2) for _ in range(2)]
    assert [batch and batch.has_more for batch in batches] == [True, False]


async def test_a_version_without_changes_counts_as_delivered(store: Store) -> None:
    (channel,) = await followed(store, "a")
    await give(store, channel, 2, VersionParts(None, None))
    assert await claim(store) is None
    assert await store.outbox.waiting_users() == []
    await give(store, channel, 2, VersionParts())
    assert await claim(store) is None


async def test_an_article_delivered_by_another_channel_is_omitted(store: Store) -> None:
    one, two = await followed(store, "a", "b")
    await tell(store, one, 2, VersionParts(articles("x", "y")))
    assert shown(await tell(store, two, 2, VersionParts(articles("x", "new", "y")))) == [(two.id, 2, False, (0, 2))]


async def test_one_common_hash_identifies_an_article(store: Store) -> None:
    one, two, three = await followed(store, "a", "b", "c")
    await tell(store, one, 2, VersionParts(((0, (b"a:------", b"link----")),)))
    await give(store, two, 2, VersionParts(((0, (b"b:------", b"link----", b"title---")),)))
    await give(store, three, 2, VersionParts(((0, (b"c:------", b"title---")),)))
    assert await claim(store) is None


async def test_a_channels_own_articles_are_never_omitted(store: Store) -> None:
    one, two = await followed(store, "a", "b")
    link, title = b"link----", b"title---"
    await tell(store, one, 2, VersionParts(((0, (b"a:------", link)),)))
    await give(store, two, 2, VersionParts(((0, (b"b:------", link, title)),)))
    assert await claim(store) is None
    for version in (3, 4):
        again = VersionParts(((0, (b"a:------", link, title)),))
        assert shown(await tell(store, one, version, again)) == [(one.id, version, False, ())]


async def test_changes_that_are_no_articles_are_always_delivered(store: Store) -> None:
    one, two = await followed(store, "a", "b")
    await tell(store, one, 2, VersionParts(articles("x")))
    assert shown(await tell(store, two, 2, VersionParts(()))) == [(two.id, 2, False, ())]


async def test_an_item_omitted_completely_does_not_block_the_next_item(store: Store) -> None:
    one, two = await followed(store, "a", "b")
    await tell(store, one, 2, VersionParts(articles("x")))
    await give(store, two, 2, VersionParts(articles("x")))
    assert await claim(store) is None
    assert await store.outbox.waiting_users() == []
    for version in range(3, 8):
        await give(store, two, version, VersionParts(articles("x")))
    await give(store, two, 8, VersionParts(articles("y")))
    assert (await claim(store, most=2)) is not None


async def test_edits_are_delivered_by_the_channel_that_delivered_the_entry(store: Store) -> None:
    one, two = await followed(store, "a", "b")
    await tell(store, one, 2, VersionParts(articles("x", of="a")))
    await give(store, two, 2, VersionParts(articles("x", of="b")))
    await give(store, two, 3, VersionParts(None, ((0, (b"b:x".ljust(8), b"new-----")),)))
    assert await claim(store) is None
    edit = VersionParts(None, ((0, (b"a:x".ljust(8), b"new-----")),))
    assert shown(await tell(store, one, 3, edit)) == [(one.id, 3, True, ())]


async def test_a_claim_begins_after_the_oldest_items_if_they_are_kept_for_later(store: Store) -> None:
    one, two = await followed(store, "a", "b")
    for version in (2, 3):
        await give(store, one, version, VersionParts())
    await give(store, two, 2, VersionParts())
    (held,) = await store.outbox.queued_items({UID: ""}, 10)
    rules = ClaimRules({held[2].id: ()}, after=held[1].id)
    batch = (await store.outbox.claim([UID], 20, 6.0, {UID: rules}))[UID]
    assert shown(batch) == [(two.id, 2, False, ())]
    assert await store.outbox.claim([UID], 20, 6.0, {UID: ClaimRules({}, after=held[1].id)}) == {}
    assert await store.outbox.waiting_users() == [UID]
    assert shown(await claim(store)) == [(one.id, 2, False, ()), (one.id, 3, False, ())], "they stay in order"


async def test_an_edited_article_is_recognised_by_its_new_text(store: Store) -> None:
    one, two = await followed(store, "a", "b")
    await tell(store, one, 2, VersionParts(articles("x", of="a")))
    await tell(store, one, 3, VersionParts(None, ((0, (b"a:x".ljust(8), b"new-----")),)))
    await give(store, two, 2, VersionParts(articles("new-----", of="b")))
    assert await claim(store) is None


async def test_the_later_copy_in_one_message_is_omitted_and_mentioned(store: Store) -> None:
    one, two = await followed(store, "a", "b")
    await give(store, one, 2, VersionParts(articles("x")))
    await give(store, two, 2, VersionParts(articles("x")))
    assert shown(await claim(store)) == [(one.id, 2, False, ()), (two.id, 2, False, (0,))]


async def test_an_article_of_an_unsubscribed_channel_is_delivered_by_the_other_channel(store: Store) -> None:
    one, two = await followed(store, "a", "b")
    await give(store, one, 2, VersionParts(articles("x")))
    await give(store, two, 2, VersionParts(articles("x")))
    await store.subscriptions.unsubscribe(ALICE, one.id)
    assert shown(await claim(store)) == [(two.id, 2, False, ())]


async def test_a_thousand_article_hashes_are_kept_for_a_month(store: Store) -> None:
    one, two = await followed(store, "a", "b")
    for version in range(2, 32):
        await tell(store, one, version, VersionParts(articles(*(f"{version}-{n}" for n in range(100)))))
        sizes = [
            await store.redis.call("HLEN", key) for key in (keys.article_marks(UID), keys.older_article_marks(UID))
        ]
        assert sum(sizes) <= 1_200
    ages_s = [await store.redis.call("TTL", key) for key in (keys.article_marks(UID), keys.older_article_marks(UID))]
    assert all(0 < age_s <= 30 * 86_400 for age_s in ages_s)
    assert shown(await tell(store, two, 2, VersionParts(articles("2-0", "31-0")))) == [(two.id, 2, False, (1,))]


async def test_old_article_hashes_are_replaced_by_a_new_generation(store: Store) -> None:
    one, two = await followed(store, "a", "b")
    await tell(store, one, 2, VersionParts(articles("x")))
    await store.redis.call("EXPIRE", keys.article_marks(UID), 14 * 86_400)
    await tell(store, one, 3, VersionParts(articles("y")))
    assert await store.redis.call("HLEN", keys.older_article_marks(UID)) == 1
    assert await store.redis.call("TTL", keys.article_marks(UID)) > 29 * 86_400
    await give(store, two, 2, VersionParts(articles("x", "y")))
    assert await claim(store) is None


async def test_hashes_of_omitted_articles_expire(store: Store) -> None:
    one, two = await followed(store, "a", "b")
    await tell(store, one, 2, VersionParts(articles("x")))
    await store.redis.call("EXPIRE", keys.article_marks(UID), 14 * 86_400)
    await give(store, two, 2, VersionParts(((0, (b"b:------", b"x".ljust(8), b"fresh---")),)))
    assert await claim(store) is None
    assert await store.redis.call("TTL", keys.article_marks(UID)) > 29 * 86_400


async def test_delivered_messages_are_recorded_and_dead_letters_are_not(store: Store) -> None:
    (channel,) = await followed(store, "a")
    await give(store, channel, 2, VersionParts())
    batch = await claim(store)
    assert batch is not None
    for _ in range(2):
        await store.outbox.complete(acked=[(UID, batch.message_id)])
    for _ in range(2):
        await store.outbox.complete(done=[(UID, batch.message_id)])
    await give(store, channel, 3, VersionParts())
    lost = await claim(store)
    assert lost is not None
    await store.outbox.move_to_dead_letters(UID, lost.message_id, "gone")
    ((told,),) = await store.outbox.sent_messages([UID])
    assert (told.message_id, told.items) == (batch.message_id, batch.items)


async def test_the_progress_of_each_message_is_recorded(store: Store) -> None:
    (channel,) = await followed(store, "a")
    made = []
    for version in (2, 3, 4, 5):
        await give(store, channel, version, VersionParts())
        batch = await claim(store)
        assert batch is not None
        made.append((UID, batch.message_id))
    received, sent, lost, flying = made
    await store.outbox.complete(acked=[received, lost])
    await store.outbox.count_retry(UID, [lost[1], flying[1]])
    await store.outbox.complete(done=[sent])
    for _ in range(2):
        await store.outbox.complete(received=[received])
    await store.outbox.move_to_dead_letters(*lost, "came back")
    log = {message.message_id: message for message in await store.outbox.history(UID)}
    assert list(log) == [sent[1], lost[1], received[1]], "in the order in which the server took them"
    assert log[received[1]].sent_s is not None
    assert log[received[1]].received_s is not None
    assert log[received[1]].claimed_s > 0
    assert (log[sent[1]].received_s, log[sent[1]].why, log[sent[1]].tries) == (None, "", 1)
    assert (log[lost[1]].why, log[lost[1]].tries) == ("came back", 2)
    assert [batch.tries for batch in (await store.outbox.in_flight([UID]))[UID]] == [2]
    assert [told.message_id for told in (await store.outbox.sent_messages([UID]))[0]] == [sent[1], received[1]]


async def test_the_last_twenty_messages_are_remembered(store: Store) -> None:
    (channel,) = await followed(store, "a")
    batches = [await tell(store, channel, version, VersionParts()) for version in range(2, 27)]
    (told,) = await store.outbox.sent_messages([UID])
    assert [message.message_id for message in told] == [batch.message_id for batch in reversed(batches)][:20]
    assert 0 < await store.redis.call("TTL", keys.sent_messages(UID)) <= 30 * 86_400


async def corrected(store: Store, edits: Batch, original: Batch, most: int = 40) -> Batch:
    return (await store.outbox.correct([(UID, edits.message_id, original.message_id)], most))[UID]


async def claimed_edits(store: Store, channel: Channel, version: int) -> Batch:
    await give(store, channel, version, VersionParts(None, ()))
    batch = await claim(store)
    assert batch is not None
    return batch


async def test_a_correction_has_the_earlier_items_and_its_own(store: Store) -> None:
    (channel,) = await followed(store, "a")
    original = await tell(store, channel, 2, VersionParts())
    later = await tell(store, channel, 3, VersionParts())
    for version in (4, 5):
        edits = await claimed_edits(store, channel, version)
        for _ in range(2):
            correction = await corrected(store, edits, original)
        assert correction.replaces == original.message_id, "of the original, also the second time"
        assert correction.message_id == edits.message_id
        assert [item.version for item in correction.items] == [2, *range(4, version + 1)]
        assert (await store.outbox.in_flight([UID]))[UID] == [correction]
        await store.outbox.complete(done=[(UID, correction.message_id)])
    (told,) = await store.outbox.sent_messages([UID])
    assert [message.message_id for message in told] == [original.message_id, later.message_id]


@pytest.mark.parametrize("why", ["forgotten", "too long", "of a channel that was left"])
async def test_a_batch_that_cannot_be_a_correction_is_unchanged(store: Store, why: str) -> None:
    one, two = await followed(store, "a", "b")
    for channel in (one, two):
        await give(store, channel, 2, VersionParts())
    original = await claim(store)
    assert original is not None
    await store.outbox.complete(done=[(UID, original.message_id)])
    if why == "forgotten":
        await store.redis.call("DEL", keys.sent_messages(UID))
    if why == "of a channel that was left":
        await store.subscriptions.unsubscribe(ALICE, two.id)
    edits = await claimed_edits(store, one, 3)
    assert await corrected(store, edits, original, most=2 if why == "too long" else 3) == edits


async def test_a_completed_batch_is_not_corrected(store: Store) -> None:
    (channel,) = await followed(store, "a")
    original = await tell(store, channel, 2, VersionParts())
    edits = await claimed_edits(store, channel, 3)
    await store.subscriptions.unsubscribe(ALICE, channel.id)
    assert await store.outbox.correct([(UID, edits.message_id, original.message_id)], 40) == {}


CHANNELS = 3
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("publish"), st.integers(0, CHANNELS - 1), st.lists(st.integers(0, 7), max_size=4, unique=True)
        ),
        st.tuples(st.just("claim"), st.integers(1, 3), st.just([])),
        st.tuples(st.just("repeat"), st.integers(0, 30), st.just([])),
    ),
    max_size=25,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_each_article_is_delivered_only_by_its_first_channel(
    clean_redis: str, steps: Sequence[tuple[str, int, list[int]]]
) -> None:
    """Whenever batches are claimed, and however often a fan-out that crashed is repeated."""
    asyncio.run(_play(clean_redis, steps))


async def _play(redis_url: str, steps: Sequence[tuple[str, int, list[int]]]) -> None:
    store = open_store(Settings(redis_url=redis_url))
    try:
        await store.redis.call("FLUSHALL")
        history = _History(store, await followed(store, *(str(n) for n in range(CHANNELS))))
        for what, number, names in steps:
            if what == "publish":
                await history.publish(history.channels[number], names)
            elif what == "claim":
                await history.take(number)
            elif history.published:
                await history.give(*history.published[number % len(history.published)])
        while await history.take(2):
            pass
        assert history.told == history.owed()
    finally:
        await store.close()


@dataclass
class _History:
    """The versions that channels published, and those that Alice received, in order."""

    store: Store
    channels: list[Channel]
    published: list[tuple[Channel, int, list[int]]] = field(default_factory=list)
    told: list[tuple[ChannelId, int]] = field(default_factory=list)

    async def publish(self, channel: Channel, names: list[int]) -> None:
        version = 2 + sum(channel == other for other, _, _ in self.published)
        self.published.append((channel, version, names))
        await self.give(channel, version, names)

    async def give(self, channel: Channel, version: int, names: list[int]) -> None:
        await give(
            self.store,
            channel,
            version,
            VersionParts(articles(*map(str, names), of=channel.url[-1]) if names else None),
        )

    async def take(self, most: int) -> bool:
        batch = await claim(self.store, most)
        contents = {(channel.id, version): names for channel, version, names in self.published}
        for cid, version, _, left_out in shown(batch):
            self.told += [(cid, name) for at, name in enumerate(contents[cid, version]) if at not in left_out]
        return batch is not None

    def owed(self) -> list[tuple[ChannelId, int]]:
        tellers: dict[int, ChannelId] = {}
        everything = [(channel.id, name) for channel, _, names in self.published for name in names]
        for cid, name in everything:
            tellers.setdefault(name, cid)
        return [(cid, name) for cid, name in everything if tellers[name] == cid]
