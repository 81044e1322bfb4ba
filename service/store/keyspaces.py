"""Keyspaces on Redis: what ``service.clash`` decides, each method an instant in one slot.

Only ``AcceptObject`` has a short way of its own: its scripts answer for a leaf at rest, and leave every other case to
the table, which comes back with the reply.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from service.clash import steps
from service.clash.groups import KeyGroup, Keyspace, Keyspaces, check_key
from service.clash.records import Page, Record
from service.clash.search import Probe
from service.clash.table import Move, ServerTable
from service.clash.transitions import Accepted, Answer, admit, answer, emptied, given, gives, takes
from service.clash.walk import ReadDonor, ReadLeaf
from service.store import keys
from service.store.link import Value
from service.store.packing import RECORD_BYTES, bounds, packed, position_bytes, unpacked
from service.store.tables import Fields, Tables, changes, fields_of
from service.store.together import Together

PAGE = 500
"""Records that a move takes over at once: some milliseconds of Redis."""
_ENDS_AT_ONCE = 500
_ADDING = ("count", "read")
"""Scripts that add something to their answer."""
_NOTHING = Page((), complete=True)


class KeyspaceStore:
    """All keyspaces of a store. Calls of one turn of the event loop share a round trip.

    Every method may raise :class:`service.errors.StoreUnavailable`, and where it is given or meets what is not of this
    store :class:`service.errors.UnknownKeyspace` or :class:`service.errors.BadKey`: then nothing has changed.
    """

    def __init__(self, link: Together, keyspaces: Keyspaces, bits: int) -> None:
        """Use this link to Redis. All processes need the same keyspaces, and bits of a key (at most 32)."""
        self._link = link
        self.map = keyspaces
        self.bits = bits
        self._tables = Tables(link, keyspaces, bits)

    async def carry_out(self, step: steps.Step) -> steps.Outcome:
        """Do a step of a move, atomically; raises :class:`service.errors.StepRefused` as the pure transition does."""
        keyspace = steps.keyspace_of(step)
        outcome = None
        while outcome is None:
            ((fields, table),) = await self._tables.read([keyspace])
            outcome = await self._try(step, fields, table)
        return outcome

    async def tables(self, keyspaces: Sequence[Keyspace]) -> list[ServerTable]:
        """Return keyspaces' tables, in the order asked for."""
        return [table for _, table in await self._tables.read(keyspaces)]

    async def ask(self, probe: Probe) -> Answer:
        """AcceptObject, for who only wants to know."""
        return (await self._accept(probe, "ask"))[0]

    async def write(self, probe: Probe, record: Record) -> Answer:
        """AcceptObject, for a subscription or its end: written if, and only if, it is accepted."""
        check_key(record.key, self.bits)
        return (await self._accept(probe, "write", packed(record)))[0]

    async def count(self, probe: Probe, mark: bytes) -> tuple[Answer, int]:
        """AcceptObject, for who counts: how many subscriptions to the channel of this mark the keyspace has."""
        found, (number,) = await self._accept(probe, "count", mark)
        return found, number

    async def count_in(self, keyspace: Keyspace, mark: bytes) -> int:
        """Return how many subscriptions to the channel of this mark a keyspace has, whatever it accepts."""
        self.map.check(keyspace)
        return int(await self._link.call("HGET", keys.keyspace(keyspace)[3], mark) or 0)

    async def count_all(self) -> Counter[bytes]:
        """Return how many subscribe to each channel, by its mark; too many, but never too few, while groups move."""
        found = await self._link.many([("HGETALL", keys.keyspace(number)[3]) for number in range(self.map.count)])
        counts: Counter[bytes] = Counter()
        for held in found:
            for mark, count in held.items():
                counts[mark] += int(count)
        return counts

    async def read_leaf(self, question: ReadLeaf) -> tuple[Answer, Page]:
        """AcceptObject, for a reader."""
        low, high = bounds(question.prefix, question.after)
        found, pages = await self._accept(question.probe, "read", low, high, question.count)
        return found, _page(pages, question.count) if isinstance(found, Accepted) else _NOTHING

    async def read_donor(self, question: ReadDonor) -> Page:
        """Read what has not gone over yet."""
        donor = question.move.donor
        low, high = bounds(question.group, question.after)
        fields, *pages = await self._tables.run(donor, "read_donor", low, high, question.count)
        table = self._tables.table(donor, fields_of(fields))
        return _page(pages, question.count) if gives(table, question.move) else _NOTHING

    async def sizes(self, keyspace: Keyspace, groups: Sequence[KeyGroup]) -> list[int]:
        """Return how many subscriptions of each group lie in a keyspace."""
        found: list[int] = await self._tables.run(
            keyspace, "sizes", *(bound for group in groups for bound in bounds(group))
        )
        return found

    async def told(self, keyspace: Keyspace, group: KeyGroup, deliveries: int) -> None:
        """Note that so many people of a leaf were told something. May be lost: loads are soft state."""
        self.map.check(keyspace)
        await self._link.call("HINCRBY", keys.keyspace_told(keyspace), group.label, deliveries)

    async def take_told(self, keyspace: Keyspace) -> Mapping[KeyGroup, int]:
        """Return what was noted since the last call, by leaf, and begin again from nothing."""
        self.map.check(keyspace)
        found = await self._link.script("keyspace_told", (keys.keyspace_told(keyspace),))
        return {KeyGroup.labelled(label, self.bits): int(number) for label, number in fields_of(found).items()}

    async def _accept(self, probe: Probe, what: str, *arguments: Value) -> tuple[Answer, list[Any]]:
        """Return the answer, and what the script has added to it."""
        check_key(probe.key, self.bits)
        if probe.proof is not None:
            await self._admit(probe.keyspace, probe.proof)
        while True:
            key = f"{probe.key:0{self.bits}b}"
            reply = await self._tables.run(probe.keyspace, what, key, probe.depth, *arguments)
            said, *rest = reply if what in _ADDING else (reply,)
            if isinstance(said, bytes):
                return Accepted(KeyGroup.labelled(said.decode(), self.bits)), rest
            fields = fields_of(said)
            table = self._tables.table(probe.keyspace, fields)
            if fields or not table.entries:
                return answer(table, probe.key), rest
            # The first question of all: the root's table is made.
            await self._tables.write(fields, table)

    async def _admit(self, keyspace: Keyspace, proof: Move) -> None:
        while True:
            ((fields, before),) = await self._tables.read([keyspace])
            after = admit(before, proof)
            if after is before or await self._tables.write(fields, after):
                return

    async def _try(self, step: steps.Step, fields: Fields, before: ServerTable) -> steps.Outcome | None:
        """Do a step on a table that was read; None if it has changed since, and nothing was done."""
        match step:
            case steps.Fetch():
                return await self._fetch(step, fields, before)
            case steps.Put():
                return await self._put(step, fields, before)
            case _:
                return await self._change(step, fields, before)

    async def _change(self, step: steps.Step, fields: Fields, before: ServerTable) -> steps.Outcome | None:
        after = steps.apply(before, step, self.map)
        leaf = steps.filled(step, after)
        if leaf is not None:
            # Also if it was at rest before: who did this step may have died on the way through its ends.
            if not await self._drop_ends(fields, after, leaf):
                return None
        elif after is not before and not await self._tables.write(fields, after):
            return None
        match step:
            case steps.SplitGroup() | steps.MergeGroup() | steps.RecallGroup():
                return steps.Begun(after.move)
            case steps.GiveKeyGroup():
                return steps.Decided(given(after, step.move))
        return steps.Done()

    async def _drop_ends(self, fields: Fields, after: ServerTable, leaf: KeyGroup) -> bool:
        """Change the table, and drop the first ends of a leaf in the same instant; false if there are more."""
        changed = changes(fields, after)
        done, *dropped = await self._tables.run(after.keyspace, "filled", changed, *bounds(leaf), _ENDS_AT_ONCE)
        return bool(done) and dropped[0] < _ENDS_AT_ONCE

    async def _fetch(self, step: steps.Fetch, fields: Fields, table: ServerTable) -> steps.Fetched | None:
        if not gives(table, step.move):
            return steps.Fetched(())
        dropped = b"".join(position_bytes(record) for record in step.taken_over)
        changed = changes(fields, emptied(table, step.move))
        done, *pages = await self._tables.run(table.keyspace, "fetch", changed, dropped, *bounds(step.move.group), PAGE)
        return steps.Fetched(_page(pages, PAGE).records) if done else None

    async def _put(self, step: steps.Put, fields: Fields, table: ServerTable) -> steps.Kept | None:
        if not takes(table, step.move):
            return steps.Kept(taking=False)
        records = b"".join(packed(record) for record in step.records)
        (done,) = await self._tables.run(table.keyspace, "put", changes(fields, table), records)
        return steps.Kept(taking=True) if done else None


def _page(reply: Sequence[Any], count: int) -> Page:
    """Return the first records of what a script found in a range."""
    more, *pages = reply
    found = b"".join(pages)
    return Page(unpacked(found[: count * RECORD_BYTES]), complete=not more and len(found) <= count * RECORD_BYTES)
