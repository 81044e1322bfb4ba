"""The processes of ``tests.live.shards``: maintainers of keyspaces that kill themselves, and a reader as the load."""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import accumulate, pairwise

import msgspec
import structlog

from service.asyncio_tasks import BackgroundTasks
from service.clash.move_steps import Outcome, Step
from service.clash.split_merge_policy import LoadLimits
from service.errors import LeaseLost, StoreUnavailable
from service.feeds.canonical_urls import channel_id
from service.model import ChannelId, UserId
from service.overlay.ring import balanced_id
from service.settings import Settings
from service.store import Store, open_store
from service.store.client import keys
from service.store.subscriptions.keyspace_store import KeyspaceStore
from workers.key_group_balancer import KeyGroupBalancer

CHANNELS = 10_000
HOT_SHARE = 0.2
LEASE_S = 0.8
INTERVAL_S = 1.0
PAGE = 500


def site(rank: int) -> str:
    """Return the site of a channel; some sites have several channels."""
    return f"site{rank % 3_000}.example"


def cid(rank: int) -> ChannelId:
    """Return the id of the channel with this rank of popularity; 0 is the most popular."""
    return channel_id(f"https://{site(rank)}/{rank}")


def uid(number: int) -> UserId:
    """Return the id of a user."""
    return keys.user_id(f"person{number}@example.org")


def sizes(subscriptions: int) -> list[int]:
    """Return the number of subscribers of each channel: 20 % for the first, the rest by Zipf's law with exponent 1."""
    hot = round(subscriptions * HOT_SHARE)
    weights = [1 / rank for rank in range(1, CHANNELS)]
    ends = [round((subscriptions - hot) * reached / sum(weights)) for reached in accumulate(weights)]
    return [hot, *(end - start for start, end in pairwise([0, *ends]))]


def all_subscriptions(subscriptions: int) -> Iterator[tuple[int, int]]:
    """Yield each subscription as (rank of the channel, number of the user in it)."""
    for rank, size in enumerate(sizes(subscriptions)):
        yield from ((rank, number) for number in range(size))


class MortalKeyspaces(KeyspaceStore):
    """Keyspaces whose process is killed at the first step of a kind: ``before Settle`` or ``after Settle``."""

    def __init__(self, store: Store, dies: str) -> None:
        super().__init__(store.redis, store.keyspaces.map, store.keyspaces.bits)
        self._when, self._kind = dies.split()

    async def carry_out(self, step: Step) -> Outcome:
        hit = type(step).__name__ == self._kind
        if not hit or self._when == "after":
            outcome = await super().carry_out(step)
        if hit:
            _print_json([self._kind, self._when])
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome


async def run_balancer(redis_url: str, capacity: float, dies: str) -> None:
    """Run a node that only balances keyspaces, until it is killed at a step or stopped."""
    store = open_store(Settings(redis_url=redis_url))
    if dies:
        store.keyspaces = MortalKeyspaces(store, dies)
    while True:
        try:
            me = await store.ring.join(f"keeper:{os.getpid()}", "", LEASE_S, balanced_id)
            tasks, version, looked_s = BackgroundTasks(), -1, 0.0
            keeper = KeyGroupBalancer(me.id, store, LoadLimits(capacity), interval_s=INTERVAL_S, tasks=tasks)
            while True:
                beat = await store.ring.heartbeat(me, LEASE_S, version)
                if beat.ring is not None:
                    version = beat.ring.version
                    keeper.on_ring_changed(beat.ring)
                if time.monotonic() - looked_s >= INTERVAL_S:
                    looked_s = time.monotonic()
                    await keeper.balance(beat.time_s)
                await asyncio.sleep(LEASE_S / 4)
        except (StoreUnavailable, LeaseLost):
            await asyncio.sleep(0.1)


async def read_repeatedly(redis_url: str, subscriptions: int, pause_s: float) -> None:
    """Repeatedly read all subscribers of the most popular channel, like a fan-out; each must be returned once.

    Prints, after each pass, its duration and the numbers of missed and repeated subscribers.
    """
    store = open_store(Settings(redis_url=redis_url))
    expected = {uid(number) for number in range(sizes(subscriptions)[0])}
    while True:
        started_s, cursor, found, failed = time.time(), None, [], 0
        slowest_s = 0.0
        while cursor != "":
            page_s = time.monotonic()
            try:
                entries, cursor = await store.channel_index.page(cid(0), cursor or "", PAGE)
                found += [user for user, _ in entries]
            except StoreUnavailable:
                failed += 1
            slowest_s = max(slowest_s, time.monotonic() - page_s)
        missed, doubled = len(expected - set(found)), len(found) - len(set(found))
        seen = [started_s, time.time() - started_s, len(found), missed, doubled, failed, slowest_s]
        _print_json(seen)
        await asyncio.sleep(pause_s)


def _print_json(seen: list[str] | list[float]) -> None:
    sys.stdout.write(msgspec.json.encode(seen).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["keep", "read"])
    parser.add_argument("redis_url")
    parser.add_argument("--capacity", type=float, default=1.0)
    parser.add_argument("--dies", default="")
    parser.add_argument("--subscriptions", type=int, default=0)
    parser.add_argument("--pause-s", type=float, default=0.2)
    given = parser.parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    if given.part == "keep":
        asyncio.run(run_balancer(given.redis_url, given.capacity, given.dies))
    else:
        asyncio.run(read_repeatedly(given.redis_url, given.subscriptions, given.pause_s))
