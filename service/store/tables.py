"""Tables of keyspaces on Redis: read, changed by a pure transition, and written if they are still as they were read."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from service.clash.groups import KeyGroup, Keyspace, Keyspaces
from service.clash.table import ServerTable, empty_table, from_fields, root_table, to_fields
from service.store import keys
from service.store.link import Value
from service.store.together import Together

Fields = Mapping[str, str]
"""A table as it was read; empty where nobody has written one yet."""


class Tables:
    """The tables of all keyspaces, and the scripts that work beside them."""

    def __init__(self, link: Together, keyspaces: Keyspaces, bits: int) -> None:
        """Use this link to Redis; so many keyspaces, and bits of a key."""
        self._link = link
        self.map = keyspaces
        self.bits = bits
        self._root = keyspaces.keyspace_of(KeyGroup(0, 0, bits))

    async def read(self, keyspaces: Sequence[Keyspace]) -> list[tuple[Fields, ServerTable]]:
        """Return tables in the order asked for, with what stands in Redis."""
        for keyspace in keyspaces:
            self.map.check(keyspace)
        replies = await self._link.many([("HGETALL", keys.keyspace(keyspace)[0]) for keyspace in keyspaces])
        found = zip(keyspaces, map(fields_of, replies), strict=True)
        return [(fields, self.table(keyspace, fields)) for keyspace, fields in found]

    def table(self, keyspace: Keyspace, fields: Fields) -> ServerTable:
        """Return the table that these fields say; before the first write the root's keyspace has the root."""
        if fields:
            return from_fields(keyspace, fields, self.map, self.bits)
        return root_table(keyspace, self.bits) if keyspace == self._root else empty_table(keyspace, self.bits)

    async def write(self, fields: Fields, table: ServerTable) -> bool:
        """Write a table in place of one that was read; False if that is not there any more."""
        (done,) = await self.run(table.keyspace, "change", changes(fields, table))
        return bool(done)

    async def run(self, keyspace: Keyspace, what: str, *arguments: Value) -> Any:
        """Run ``keyspace_WHAT.lua`` on a keyspace."""
        self.map.check(keyspace)
        return await self._link.script(f"keyspace_{what}", keys.keyspace(keyspace), *arguments)


def changes(fields: Fields, table: ServerTable) -> bytes:
    """Return a table as it was read, and what makes another of it, for a script."""
    after = to_fields(table)
    changed = {name: text for name, text in after.items() if fields.get(name) != text}
    return msgspec.json.encode({"read": fields, "set": changed, "drop": [*(fields.keys() - after.keys())]})


def fields_of(reply: Any) -> Fields:
    """Return a hash that came from HGETALL itself, or through a script."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(): text.decode() for name, text in pairs}
