"""Messages to nodes: one stream each, read from where the node is, never longer than it needs to be."""

from typing import Literal

import msgspec

from service.model import NodeId
from service.store import keys
from service.store.link import BLOCK_AT_MOST_S, Command, Link, Together

_LENGTH = 10_000
_KEPT_S = 3600

Kind = Literal["peer", "ask", "push", "share"]

_KINDS: dict[bytes, Kind] = {b"ask": "ask", b"push": "push", b"share": "share"}


class Letter(msgspec.Struct, frozen=True):
    """One message: ``peer`` between nodes (corona's protocol), ``ask`` from a bot or the console.

    ``push`` says that a hub sent something for a channel (its id is the payload), and wants no answer; ``share`` is
    between nodes, of the directories that they keep in memory.
    """

    kind: Kind
    sender: str
    payload: bytes


class Inboxes:
    """Send to any node's inbox; read one's own. Soft state: what is lost is sent again by the protocol."""

    def __init__(self, link: Link, together: Together) -> None:
        """Use this link to Redis: to wait for letters alone, for all else together with others."""
        self._link = link
        self._together = together

    async def send(self, letters: list[tuple[NodeId, Letter]]) -> None:
        """Put letters into inboxes, in order, in one round trip."""
        commands: list[Command] = []
        for to, letter in letters:
            fields = ("k", letter.kind, "f", letter.sender, "m", letter.payload)
            commands.append(("XADD", keys.inbox(to), "MAXLEN", "~", _LENGTH, "*", *fields))
        # Letters may follow a node into its grave, where nobody reads them.
        commands += [("EXPIRE", keys.inbox(to), _KEPT_S) for to in dict.fromkeys(to for to, _ in letters)]
        await self._together.many(commands)

    async def read(self, node: NodeId, after: str) -> tuple[list[Letter], str]:
        """Wait for letters after this place ("0" from the start); return them and the next place.

        What was returned is not given again: a letter that its reader does not live to answer is lost.
        """
        block_ms = int(BLOCK_AT_MOST_S * 1000)
        found = await self._link.wait("XREAD", "COUNT", 500, "BLOCK", block_ms, "STREAMS", keys.inbox(node), after)
        letters = []
        for _, entries in found or ():
            for entry, fields in entries:
                after = entry.decode()
                letters.append(Letter(_KINDS.get(fields[b"k"], "peer"), fields[b"f"].decode(), fields[b"m"]))
        return letters, after

    async def drop_read(self, node: NodeId, place: str) -> None:
        """Keep no longer what was read up to this place."""
        await self._together.call("XTRIM", keys.inbox(node), "MINID", place)

    async def discard(self, nodes: tuple[NodeId, ...]) -> None:
        """Delete the inboxes of nodes that are gone."""
        if nodes:
            await self._together.many([("UNLINK", keys.inbox(node)) for node in nodes])
