"""What keyspaces have to do, measured by their keepers, and kept where others see it. It may be lost: that is cheap.

A rate stands by the prefix that was told, not by leaf, with the time when it was measured, and fades from then on
(:class:`service.clash.load.Rate`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from service.clash.groups import KeyGroup, Keyspace
from service.clash.load import Memory, Rate, loads, parted
from service.clash.table import LEAVES, Move, ServerTable
from service.store import keys
from service.store.keyspaces import KeyspaceStore
from service.store.link import Command, Together

KEPT_S = 3600
_NEGLIGIBLE_PER_S = 0.01

Rates = Mapping[KeyGroup, Rate]


class Weighed(NamedTuple):
    """Subscriptions and load of each leaf of some keyspaces: the load now, and the most of now and of a while."""

    sizes: dict[Keyspace, dict[KeyGroup, int]]
    loads: dict[Keyspace, dict[KeyGroup, float]]
    lasting: dict[Keyspace, dict[KeyGroup, float]]


class LoadStore:
    """Rates of prefixes, and loads of leaves. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, link: Together, keyspaces: KeyspaceStore) -> None:
        """Use this link to Redis."""
        self._link = link
        self._keyspaces = keyspaces

    async def measure(self, keyspace: Keyspace, elapsed_s: float, fleet_s: float, memory: Memory) -> None:
        """Turn what fan-outs noted in the last ``elapsed_s`` into rates. Only the keeper does.

        ``fleet_s`` is the fleet's time.
        """
        told, (before,) = await asyncio.gather(
            self._keyspaces.take_told(keyspace), self._rates([keyspace], fleet_s, memory)
        )
        risen = {
            prefix: before.get(prefix, Rate()).with_measured(deliveries / elapsed_s, elapsed_s, memory)
            for prefix, deliveries in told.items()
        }
        faint = [prefix for prefix, rate in before.items() if prefix not in risen and _is_faint(rate)]
        await self._note(keyspace, risen, faint, fleet_s)

    async def weigh(self, tables: Sequence[ServerTable], fleet_s: float, memory: Memory) -> Weighed:
        """Return how many subscriptions each leaf of these keyspaces has, and what it weighs."""
        leaves = [[group for group, entry in table.entries.items() if entry.standing in LEAVES] for table in tables]
        counted, rates = await asyncio.gather(
            asyncio.gather(
                *(self._keyspaces.sizes(table.keyspace, own) for table, own in zip(tables, leaves, strict=True))
            ),
            self._rates([table.keyspace for table in tables], fleet_s, memory),
        )
        weighed = Weighed({}, {}, {})
        for table, own, counts, found in zip(tables, leaves, counted, rates, strict=True):
            sizes = dict(zip(own, counts, strict=True))
            now = loads(sizes, {prefix: rate.current for prefix, rate in found.items()})
            lately = loads(sizes, {prefix: rate.lately for prefix, rate in found.items()})
            weighed.sizes[table.keyspace] = sizes
            weighed.loads[table.keyspace] = now
            weighed.lasting[table.keyspace] = {leaf: max(load, lately[leaf]) for leaf, load in now.items()}
        return weighed

    async def hand_over(self, move: Move, fleet_s: float, memory: Memory) -> None:
        """Have the rates of a group that has moved stand where it is now, until its new keeper measures."""
        (rates,) = await self._rates([move.donor], fleet_s, memory)
        going, staying = parted({prefix: rate.current for prefix, rate in rates.items()}, move.group)
        lately, stayed = parted({prefix: rate.lately for prefix, rate in rates.items()}, move.group)
        await self._note(move.taker, {prefix: Rate(now, lately[prefix]) for prefix, now in going.items()}, [], fleet_s)
        left = {prefix: Rate(now, stayed[prefix]) for prefix, now in staying.items()}
        kept = {prefix: rate for prefix, rate in left.items() if not _is_faint(rate)}
        await self._note(move.donor, kept, [prefix for prefix in left if prefix not in kept], fleet_s)

    async def _note(self, keyspace: Keyspace, rates: Rates, gone: Sequence[KeyGroup], fleet_s: float) -> None:
        own = keys.keyspace_rates(keyspace)
        commands: list[Command] = []
        if rates:
            fields = [value for prefix, rate in rates.items() for value in (prefix.label, _text(rate, fleet_s))]
            commands += [("HSET", own, *fields), ("EXPIRE", own, KEPT_S)]
        if gone:
            commands.append(("HDEL", own, *(prefix.label for prefix in gone)))
        if commands:
            await self._link.many(commands)

    async def _rates(self, keyspaces: Sequence[Keyspace], fleet_s: float, memory: Memory) -> list[dict[KeyGroup, Rate]]:
        bits = self._keyspaces.bits
        found = await self._link.many([("HGETALL", keys.keyspace_rates(keyspace)) for keyspace in keyspaces])
        return [
            {KeyGroup.labelled(label.decode(), bits): _rate(text, fleet_s, memory) for label, text in fields.items()}
            for fields in found
        ]


def _is_faint(rate: Rate) -> bool:
    return max(rate.current, rate.lately) < _NEGLIGIBLE_PER_S


def _text(rate: Rate, fleet_s: float) -> str:
    return f"{rate.current:.6g} {rate.lately:.6g} {fleet_s:.3f}"


def _rate(text: bytes, fleet_s: float, memory: Memory) -> Rate:
    now, lately, at_s = map(float, text.split())
    return Rate(now, lately).after(fleet_s - at_s, memory)
