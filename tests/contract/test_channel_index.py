"""The channel index: a user who is subscribed throughout a walk is found once, while key groups move."""

import asyncio
from collections.abc import Sequence
from itertools import count, cycle

import pytest

from service.clash.key_groups import KeyGroup
from service.clash.move_steps import MergeGroup, SplitGroup, Step, next_step
from service.errors import MoveRefused
from service.feeds.canonical_urls import channel_id
from service.model import Channel, ChannelId, UserId
from service.store import LAYOUT, Store
from service.store.client import keys
from service.store.subscriptions.keyspace_store import run_move
from tests.support.channels import make_channel

SITE = "example.org"
PEOPLE = [keys.user_id(f"person{number}@localhost") for number in range(40)]


async def _everybody(store: Store, cid: ChannelId, cursor: str = "", count: int = 7, label: str = "") -> list[UserId]:
    """Return the users on all pages of a channel's index after ``cursor``, in order."""
    entries, cursor = await store.channel_index.page(cid, cursor, count, label)
    found = [uid for uid, _ in entries]
    while cursor:
        entries, cursor = await store.channel_index.page(cid, cursor, count, label)
        found += [uid for uid, _ in entries]
    return found


async def _subscribed(store: Store, people: Sequence[UserId] = PEOPLE, url: str = f"https://{SITE}/feed") -> Channel:
    channel = await make_channel(store, url)
    assert all(await asyncio.gather(*(store.channel_index.add(channel.id, uid, 1) for uid in people)))
    return channel


def _same_place() -> tuple[str, str]:
    """Return the URLs of two channels whose subscriptions have the same keys."""
    seen: dict[KeyGroup, str] = {}
    for number in count():
        url = f"https://{SITE}/{number}"
        group = LAYOUT.channel_group(SITE, channel_id(url))
        if group in seen:
            return seen[group], url
        seen[group] = url
    raise AssertionError


async def test_each_subscriber_is_on_one_page(store: Store) -> None:
    channel = await _subscribed(store)
    assert sorted(await _everybody(store, channel.id)) == sorted(PEOPLE)
    assert await store.channel_index.count([channel.id]) == [len(PEOPLE)]


@pytest.mark.parametrize("count", [1, 3, 8, 1_000])
async def test_parts_of_a_channel_have_each_subscriber_after_a_cursor_once(store: Store, count: int) -> None:
    channel = await _subscribed(store)
    first, cursor = await store.channel_index.page(channel.id, "", 7)
    found = [uid for uid, _ in first]
    for label, start in (await store.channel_index.divide(channel.id, cursor, count)).items():
        found += await _everybody(store, channel.id, start, label=label)
    assert sorted(found) == sorted(PEOPLE)


async def test_channels_with_the_same_keys_are_distinguished(store: Store) -> None:
    urls = _same_place()
    both = [await _subscribed(store, PEOPLE[: number + 3], url) for number, url in enumerate(urls)]
    assert await store.channel_index.count([channel.id for channel in both]) == [3, 4]
    await store.channel_index.remove(both[0].id, [(PEOPLE[0], 1)])
    assert sorted(await _everybody(store, both[0].id)) == sorted(PEOPLE[1:3])
    assert sorted(await _everybody(store, both[1].id)) == sorted(PEOPLE[:4])


async def test_channels_are_counted_together_before_and_after_their_leaf_is_split(store: Store) -> None:
    numbers = range(1, 7)
    cids = [(await _subscribed(store, PEOPLE[:each], f"https://site{each}.example/feed")).id for each in numbers]
    assert await store.channel_index.count([*cids, "f" * 40]) == [*numbers, 0]
    root = KeyGroup(0, 0, LAYOUT.bits)
    async for _ in run_move(store.keyspaces, SplitGroup(store.keyspaces.map.keyspace_of(root), root)):
        found = await store.channel_index.count(cids)
        assert all(count >= number for count, number in zip(found, numbers, strict=True))
    for _ in range(2):  # the first one learns the new leaves
        assert await store.channel_index.count(cids) == [*numbers]


async def test_all_subscribers_are_found_counted_and_written_during_moves(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A channel's group is split over several keyspaces, and all are merged again."""
    monkeypatch.setattr("service.store.subscriptions.keyspace_store.RECORDS_PER_STEP", 15)
    channel = await _subscribed(store)
    prefix, place = LAYOUT.channel_group(SITE, channel.id), store.keyspaces.map.keyspace_of
    path = [KeyGroup.containing(prefix.key, depth, LAYOUT.bits) for depth in range(prefix.depth + 3)]
    people = _People(store, channel.id)
    for group in path:
        await _carried_through(SplitGroup(place(group), group), people, checks=group.depth >= prefix.depth)
    used = [number for number in range(store.keyspaces.map.count) if await _holds(store, number)]
    assert len(used) == len(path[prefix.depth :]) + 1
    for group in reversed(path):
        await _carried_through(MergeGroup(place(group), group), people, checks=group.depth >= prefix.depth)
    assert [number for number in range(store.keyspaces.map.count) if await _holds(store, number)] == [place(path[0])]
    await people.change_and_check(exact=True)


class _People:
    """Users who subscribe and unsubscribe between pages; no key group becomes empty."""

    def __init__(self, store: Store, cid: ChannelId) -> None:
        self.store, self._cid = store, cid
        self._seqs = dict.fromkeys(PEOPLE, 1)
        self._here = set(PEOPLE)
        self._turns = cycle(uid for uid in PEOPLE for _ in range(2))

    async def change_and_check(self, *, exact: bool = False) -> None:
        uid = next(self._turns)
        self._seqs[uid] += 1
        if uid in self._here:
            await self.store.channel_index.remove(self._cid, [(uid, self._seqs[uid])])
        else:
            assert await self.store.channel_index.add(self._cid, uid, self._seqs[uid])
        self._here ^= {uid}
        assert sorted(await _everybody(self.store, self._cid, count=25)) == sorted(self._here)
        (number,) = await self.store.channel_index.count([self._cid])
        assert number == len(self._here) if exact else number >= len(self._here)


async def _carried_through(first: Step, people: _People, *, checks: bool) -> None:
    coming: Step | None = first
    while coming is not None:
        try:
            outcome = await people.store.keyspaces.carry_out(coming)
        except MoveRefused:
            assert coming is first  # split in passing, because both halves were in one keyspace
            return
        coming = next_step(coming, outcome)
        if checks:
            await people.change_and_check()


async def _holds(store: Store, keyspace: int) -> bool:
    return bool(await store.redis.call("EXISTS", keys.keyspace(keyspace)[2]))


async def test_a_channel_stays_active_if_a_user_joined_after_the_count(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, counted = await make_channel(store), store.channel_index.count

    async def count_and_be_late(cids: Sequence[ChannelId]) -> list[int]:
        found = await counted(cids)
        assert await store.channel_index.add(channel.id, PEOPLE[0], 1)
        return found

    monkeypatch.setattr(store.channel_index, "count", count_and_be_late)
    await store.channels.mark_dormant(channel.id)
    (dozing,) = await store.channels.get_many([channel.id])
    assert dozing is not None
    assert not dozing.dormant


async def test_a_user_who_joins_a_removed_channel_gets_an_error_and_no_entry(store: Store) -> None:
    channel = await _subscribed(store, PEOPLE[:1])
    late = Store(store.redis).channel_index
    assert await late.add(channel.id, PEOPLE[1], 1)
    await store.channels.delete(channel.id)
    assert not await late.add(channel.id, PEOPLE[2], 1)
    assert sorted(await _everybody(store, channel.id)) == sorted(PEOPLE[:2])
    await store.remove_channel(channel.id)
    assert await store.redis.call("EXISTS", keys.channel(channel.id)) == 0
