"""What keyspaces have to do, measured by their keepers, and kept where others see it. It may be lost: that is cheap.

A rate stands by the prefix that was told, not by leaf, with the time when it was measured, and fades from then on
(:func:`service.clash.load.faded`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from service.clash.groups import KeyGroup
from service.clash.load import faded, loads, parted
from service.clash.mapping import Keyspace
from service.clash.table import LEAVES, Move, ServerTable
from service.store import keys
from service.store.keyspaces import KeyspaceStore
from service.store.link import Command
from service.store.together import Together

KEPT_S = 3600
_NEGLIGIBLE_PER_S = 0.01

Rates = Mapping[KeyGroup, float]


class Weighed(NamedTuple):
    """Subscriptions and load of each leaf of some keyspaces."""

    sizes: dict[Keyspace, dict[KeyGroup, int]]
    loads: dict[Keyspace, dict[KeyGroup, float]]


class LoadStore:
    """Rates of prefixes, and loads of leaves. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, link: Together, keyspaces: KeyspaceStore) -> None:
        """Use this link to Redis."""
        self._link = link
        self._keyspaces = keyspaces

    async def measure(self, keyspace: Keyspace, elapsed_s: float, now_s: float, half_life_s: float) -> None:
        """Turn what fan-outs noted in the last ``elapsed_s`` into rates. Only the keeper does.

        ``now_s`` is the fleet's time.
        """
        told, before = await asyncio.gather(
            self._keyspaces.take_told(keyspace), self._rates([keyspace], now_s, half_life_s)
        )
        measured = {prefix: deliveries / elapsed_s for prefix, deliveries in told.items()}
        risen = {prefix: max(rate, before[0].get(prefix, 0.0)) for prefix, rate in measured.items()}
        faint = [prefix for prefix, rate in before[0].items() if prefix not in risen and rate < _NEGLIGIBLE_PER_S]
        await self._note(keyspace, risen, faint, now_s)

    async def weigh(self, tables: Sequence[ServerTable], now_s: float, half_life_s: float) -> Weighed:
        """Return how many subscriptions each leaf of these keyspaces has, and what it weighs."""
        leaves = [[group for group, entry in table.entries.items() if entry.standing in LEAVES] for table in tables]
        counted, rates = await asyncio.gather(
            asyncio.gather(
                *(self._keyspaces.sizes(table.keyspace, own) for table, own in zip(tables, leaves, strict=True))
            ),
            self._rates([table.keyspace for table in tables], now_s, half_life_s),
        )
        sizes = {
            table.keyspace: dict(zip(own, counts, strict=True))
            for table, own, counts in zip(tables, leaves, counted, strict=True)
        }
        weights = {table.keyspace: loads(sizes[table.keyspace], own) for table, own in zip(tables, rates, strict=True)}
        return Weighed(sizes, weights)

    async def hand_over(self, move: Move, now_s: float, half_life_s: float) -> None:
        """Have the rates of a group that has moved stand where it is now, until its new keeper measures."""
        (rates,) = await self._rates([move.donor], now_s, half_life_s)
        going, staying = parted(rates, move.group)
        await self._note(move.taker, going, [], now_s)
        kept = {prefix: rate for prefix, rate in staying.items() if rate}
        await self._note(move.donor, kept, [prefix for prefix, rate in staying.items() if not rate], now_s)

    async def _note(self, keyspace: Keyspace, rates: Rates, gone: Sequence[KeyGroup], now_s: float) -> None:
        own = keys.keyspace_rates(keyspace)
        commands: list[Command] = []
        if rates:
            fields = [value for prefix, rate in rates.items() for value in (prefix.label, f"{rate:.6g} {now_s:.3f}")]
            commands += [("HSET", own, *fields), ("EXPIRE", own, KEPT_S)]
        if gone:
            commands.append(("HDEL", own, *(prefix.label for prefix in gone)))
        if commands:
            await self._link.many(commands)

    async def _rates(
        self, keyspaces: Sequence[Keyspace], now_s: float, half_life_s: float
    ) -> list[dict[KeyGroup, float]]:
        bits = self._keyspaces.bits
        found = await self._link.many([("HGETALL", keys.keyspace_rates(keyspace)) for keyspace in keyspaces])
        rates = []
        for fields in found:
            noted = {label.decode(): value.decode().split() for label, value in fields.items()}
            rates.append(
                {
                    KeyGroup.labelled(label, bits): faded(float(rate), now_s - float(at_s), half_life_s)
                    for label, (rate, at_s) in noted.items()
                }
            )
        return rates
