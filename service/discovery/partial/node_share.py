"""A node's shares of directories, lookups in them, and the letters that nodes exchange about them.

A *directory* has the names of one AV-pair, divided among servers, one per node; a *share* is what one server stores. An
entry of a directory is the text of a content name with its pairs, so that a changed name is another entry.
"""

from collections.abc import Collection, Iterable

import msgspec

from service.discovery.partial.servers import DirectoryServer, Keep, KeepAt, Message, SendToServer, make_server
from service.discovery.partial.strategies import Strategy
from service.errors import BadStrategy


class ListedName(msgspec.Struct, frozen=True):
    """A content name in a directory: its id, its version, and the keys of all its pairs."""

    name: str
    version: int
    pairs: frozenset[str]


def encode_entry(name: str, version: int, pairs: Iterable[str]) -> str:
    """Return a content name as an entry of a directory; equal names, versions and pairs give equal entries."""
    return msgspec.json.encode((name, version, sorted(pairs))).decode()


def decode_entry(text: str) -> ListedName:
    """Return the content name of a directory's entry."""
    name, version, pairs = msgspec.json.decode(text, type=tuple[str, int, list[str]])
    return ListedName(name, version, frozenset(pairs))


class PlacementTerm(msgspec.Struct, frozen=True, order=True):
    """The time in which a placement of a directory's entries is valid; a greater term is later.

    ``ring`` is the ring's version, and ``placed`` the number of placements since the ring had that version.
    """

    ring: int
    placed: int


class ShareUpdate(msgspec.Struct, frozen=True, tag="Told"):
    """Messages about the directory of one AV-pair for one server.

    ``term`` and ``strategy`` are those of the placement to which they belong. An update without messages only states
    that the share is still wanted.
    """

    pair: str
    term: PlacementTerm
    strategy: Strategy
    messages: tuple[Message, ...] = ()

    @property
    def can_start(self) -> bool:
        """Whether a server can start its share with this update, because the first message has all entries to store."""
        return bool(self.messages) and isinstance(self.messages[0], Keep | KeepAt)


class LookupCount(msgspec.Struct, frozen=True, tag="Asked"):
    """A node's report to a directory's coordinator: its lookups in the directory of ``pair`` since the last report.

    ``lookups`` is their number, and ``target`` is the largest number of entries that one of them wanted.
    """

    pair: str
    lookups: int
    target: int


Letter = list[ShareUpdate | LookupCount]


def encode_letter(letter: Letter) -> bytes:
    """Return a letter as bytes."""
    return msgspec.msgpack.encode(letter)


def decode_letter(payload: bytes) -> Letter:
    """Return a letter's content; it is empty if the letter is malformed or in the format of another version.

    Its sender repeats itself.
    """
    try:
        return msgspec.msgpack.decode(payload, type=Letter)
    except msgspec.MsgspecError:
        return []


MAX_SILENT_ROUNDS = 3
"""Number of maintenance rounds without an update after which a share is dropped."""


class _Share(msgspec.Struct):
    term: PlacementTerm
    server: DirectoryServer
    names: dict[str, ListedName]
    silent_rounds: int = 0


class NodeShares:
    """The shares of directories that one node stores while the ring is the same."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}

    def start(self, pair: str, term: PlacementTerm, strategy: Strategy, number: int, servers: int) -> DirectoryServer:
        """Create an empty share of the directory of an AV-pair, in place of an earlier one; return its server.

        The server is number ``number`` of ``servers``, counted from 0. ``term`` is the term of the placement.
        """
        share = self._shares[pair] = _Share(term, make_server(strategy, number, servers), {})
        return share.server

    def on_update(self, update: ShareUpdate, number: int, servers: int, draw: float) -> list[SendToServer]:
        """Process an update from a coordinator or another server; return the messages for other servers.

        This node is server ``number`` of ``servers``. ``draw`` is a random number in [0, 1). An update of an older term
        is ignored, and so is one of a term whose first update this node has not received.
        """
        share = self._shares.get(update.pair)
        if update.can_start and (share is None or share.term < update.term):
            self.start(update.pair, update.term, update.strategy, number, servers)
        share = self._shares.get(update.pair)
        if share is None or share.term != update.term:
            return []
        share.silent_rounds = 0
        try:
            sends = [send for message in update.messages for send in share.server.on_message(message, draw)]
        except BadStrategy:
            del self._shares[update.pair]
            return []
        if update.messages:
            known = share.names
            share.names = {text: known.get(text) or decode_entry(text) for text in share.server.entries}
        return sends

    def expire(self) -> None:
        """Drop shares that have had no update during the last ``MAX_SILENT_ROUNDS`` calls."""
        for pair, share in list(self._shares.items()):
            share.silent_rounds += 1
            if share.silent_rounds > MAX_SILENT_ROUNDS:
                del self._shares[pair]

    def server(self, pair: str) -> DirectoryServer | None:
        """Return this node's server of the directory of an AV-pair; None if this node has no share of it."""
        share = self._shares.get(pair)
        return share.server if share else None

    def names(self, pair: str) -> tuple[str, ...]:
        """Return the ids of the names in this node's share of the directory of an AV-pair; empty without a share."""
        share = self._shares.get(pair)
        return tuple(name.name for name in share.names.values()) if share else ()

    def find(self, pairs: Collection[str], required: frozenset[str], limit: int, draw: float) -> list[str]:
        """Return up to ``limit`` names that have all ``required`` pairs, from one of this node's shares.

        The share is the smallest among the directories of ``pairs``. ``required`` are the pairs' keys as entries
        contain them. The search begins at a random place, which ``draw`` in [0, 1) determines, so that all names are
        equally likely to be returned.
        """
        shares = [share for pair in pairs if (share := self._shares.get(pair)) is not None]
        if not shares:
            return []
        found: dict[str, None] = {}
        names = min(shares, key=lambda share: len(share.names)).names
        order = list(names.values())
        begin = int(draw * len(order))
        for name in (*order[begin:], *order[:begin]):
            if len(found) >= limit:
                break
            if required <= name.pairs:
                found[name.name] = None
        return list(found)
