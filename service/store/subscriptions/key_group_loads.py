"""Loads of key groups, in deliveries per second. They decide when a key group is split (CLASH §VI.A).

A *leaf* is a key group that is not split. A leaf may contain the smaller key groups of several channels. The worker
that balances a server measures the delivery rate of each channel's key group. From these rates, it can predict the load
of each half of a leaf before the leaf is split. A stored rate decays from the time of its measurement
(:class:`service.clash.split_merge_policy.DeliveryRate`). Lost rates are measured again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from service.clash.key_groups import KeyGroup, Keyspace
from service.clash.server_table import LEAF_STATES, Move, ServerTable
from service.clash.split_merge_policy import DeliveryRate, HalfLives, leaf_loads, split_rates
from service.store.client import keys
from service.store.client.node_connections import Command
from service.store.client.redis_client import RedisClient
from service.store.subscriptions.keyspace_store import KeyspaceStore

RATES_TTL_S = 3600


_NEGLIGIBLE_PER_S = 0.01


Rates = Mapping[KeyGroup, DeliveryRate]


class LeafLoads(NamedTuple):
    """Sizes and loads of leaves (key groups that are not split).

    Each field maps a keyspace to a mapping from its leaves to their values:

    - ``sizes``: how many subscriptions the leaf contains.
    - ``loads``: current deliveries per second.
    - ``peak_loads``: the higher of the current and the long-term deliveries per second.
    """

    sizes: dict[Keyspace, dict[KeyGroup, int]]
    loads: dict[Keyspace, dict[KeyGroup, float]]
    peak_loads: dict[Keyspace, dict[KeyGroup, float]]


class KeyGroupLoads:
    """Measures how many deliveries per second the subscriptions in each key group cause.

    A key group consists of the subscriptions with keys that begin with the same bits. Methods may raise
    :class:`StoreUnavailable`.
    """

    def __init__(self, redis: RedisClient, keyspaces: KeyspaceStore) -> None:
        self._redis = redis
        self._keyspaces = keyspaces

    async def measure(self, keyspace: Keyspace, elapsed_s: float, fleet_s: float, memory: HalfLives) -> None:
        """Compute and store the delivery rates of the key groups in a keyspace.

        Only the worker that balances the keyspace calls this.

        - ``keyspace``: a part of the store, called a server in the CLASH paper.
        - ``elapsed_s``: the time in seconds since the last call, during which deliveries were counted.
        - ``fleet_s``: the current Unix time in seconds, by the clock that all workers share.
        - ``memory``: the half-lives with which the stored rates decay.
        """
        delivered, (before,) = await asyncio.gather(
            self._keyspaces.take_deliveries(keyspace), self._rates([keyspace], fleet_s, memory)
        )
        risen = {
            prefix: before.get(prefix, DeliveryRate()).with_measured(deliveries / elapsed_s, elapsed_s, memory)
            for prefix, deliveries in delivered.items()
        }
        faint = [prefix for prefix, rate in before.items() if prefix not in risen and _is_negligible(rate)]
        await self._write_rates(keyspace, risen, faint, fleet_s)

    async def weigh(self, tables: Sequence[ServerTable], fleet_s: float, memory: HalfLives) -> LeafLoads:
        """Return the sizes and loads of all leaves (key groups that are not split) in several keyspaces.

        - ``tables``: the server tables of the keyspaces. A server table lists the key groups of one keyspace.
        - ``fleet_s``: the current Unix time in seconds, by the clock that all workers share.
        - ``memory``: the half-lives with which the stored rates decay.
        """
        leaves = [[group for group, entry in table.entries.items() if entry.state in LEAF_STATES] for table in tables]
        counted, rates = await asyncio.gather(
            asyncio.gather(
                *(self._keyspaces.sizes(table.keyspace, own) for table, own in zip(tables, leaves, strict=True))
            ),
            self._rates([table.keyspace for table in tables], fleet_s, memory),
        )
        weighed = LeafLoads({}, {}, {})
        for table, own, counts, found in zip(tables, leaves, counted, rates, strict=True):
            sizes = dict(zip(own, counts, strict=True))
            now = leaf_loads(sizes, {prefix: rate.current for prefix, rate in found.items()})
            lately = leaf_loads(sizes, {prefix: rate.long_term for prefix, rate in found.items()})
            weighed.sizes[table.keyspace] = sizes
            weighed.loads[table.keyspace] = now
            weighed.peak_loads[table.keyspace] = {leaf: max(load, lately[leaf]) for leaf, load in now.items()}
        return weighed

    async def hand_over(self, move: Move, fleet_s: float, memory: HalfLives) -> None:
        """Move the delivery rates of a key group to another keyspace, because the group itself has moved there.

        ``move`` names the group and both keyspaces. The new keyspace uses these rates until it has measured its own.

        - ``fleet_s``: the current Unix time in seconds, by the clock that all workers share.
        - ``memory``: the half-lives with which the stored rates decay.
        """
        (rates,) = await self._rates([move.donor], fleet_s, memory)
        going, staying = split_rates({prefix: rate.current for prefix, rate in rates.items()}, move.group)
        lately, stayed = split_rates({prefix: rate.long_term for prefix, rate in rates.items()}, move.group)
        await self._write_rates(
            move.taker, {prefix: DeliveryRate(now, lately[prefix]) for prefix, now in going.items()}, [], fleet_s
        )
        left = {prefix: DeliveryRate(now, stayed[prefix]) for prefix, now in staying.items()}
        kept = {prefix: rate for prefix, rate in left.items() if not _is_negligible(rate)}
        await self._write_rates(move.donor, kept, [prefix for prefix in left if prefix not in kept], fleet_s)

    async def _write_rates(self, keyspace: Keyspace, rates: Rates, gone: Sequence[KeyGroup], fleet_s: float) -> None:
        key = keys.keyspace_rates(keyspace)
        commands: list[Command] = []
        if rates:
            fields = [value for prefix, rate in rates.items() for value in (prefix.label, _encode_rate(rate, fleet_s))]
            commands += [("HSET", key, *fields), ("EXPIRE", key, RATES_TTL_S)]
        if gone:
            commands.append(("HDEL", key, *(prefix.label for prefix in gone)))
        if commands:
            await self._redis.call_many(commands)

    async def _rates(
        self, keyspaces: Sequence[Keyspace], fleet_s: float, memory: HalfLives
    ) -> list[dict[KeyGroup, DeliveryRate]]:
        bits = self._keyspaces.bits
        found = await self._redis.call_many([("HGETALL", keys.keyspace_rates(keyspace)) for keyspace in keyspaces])
        return [
            {
                KeyGroup.from_label(label.decode(), bits): _decode_rate(text, fleet_s, memory)
                for label, text in fields.items()
            }
            for fields in found
        ]


def _is_negligible(rate: DeliveryRate) -> bool:
    return max(rate.current, rate.long_term) < _NEGLIGIBLE_PER_S


def _encode_rate(rate: DeliveryRate, fleet_s: float) -> str:
    return f"{rate.current:.6g} {rate.long_term:.6g} {fleet_s:.3f}"


def _decode_rate(text: bytes, fleet_s: float, memory: HalfLives) -> DeliveryRate:
    now, lately, at_s = map(float, text.split())
    return DeliveryRate(now, lately).after(fleet_s - at_s, memory)
