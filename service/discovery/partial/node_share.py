"""A node's shares of directories, lookups in them, and the letters that nodes exchange about them.

A directory's entry is a content name with its pairs in one text, so that a changed name is another entry.
"""

from collections.abc import Collection, Iterable

import msgspec

from service.discovery.partial.servers import DirectoryServer, Keep, KeepAt, Message, SendToServer, make_server
from service.discovery.partial.strategies import Strategy
from service.errors import BadStrategy


class ListedName(msgspec.Struct, frozen=True):
    """A name, its version, and the keys of all its pairs."""

    name: str
    version: int
    pairs: frozenset[str]


def encode_entry(name: str, version: int, pairs: Iterable[str]) -> str:
    """Return a name as a directory's entry; equal names, versions and pairs give equal entries."""
    return msgspec.json.encode((name, version, sorted(pairs))).decode()


def decode_entry(text: str) -> ListedName:
    """Return the name that an entry represents."""
    name, version, pairs = msgspec.json.decode(text, type=tuple[str, int, list[str]])
    return ListedName(name, version, frozenset(pairs))


class PlacementTerm(msgspec.Struct, frozen=True, order=True):
    """The term of a directory's placement: the ring's version, and the number of placements on that ring."""

    ring: int
    placed: int


class ShareUpdate(msgspec.Struct, frozen=True, tag="Told"):
    """Messages about one directory for one server; without any, a keep-alive."""

    pair: str
    term: PlacementTerm
    strategy: Strategy
    messages: tuple[Message, ...] = ()

    @property
    def can_start(self) -> bool:
        """Whether a server can start with this update, because it contains all that the server has to store."""
        return bool(self.messages) and isinstance(self.messages[0], Keep | KeepAt)


class LookupCount(msgspec.Struct, frozen=True, tag="Asked"):
    """To a directory's coordinator: this node's lookups of it since the last report, and the largest target of them."""

    pair: str
    lookups: int
    target: int


Letter = list[ShareUpdate | LookupCount]


def encode_letter(letter: Letter) -> bytes:
    """Return a letter as bytes."""
    return msgspec.msgpack.encode(letter)


def decode_letter(payload: bytes) -> Letter:
    """Return a letter; one of another version is empty: its sender repeats itself."""
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
    """All shares of one node on one ring."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}

    def start(self, pair: str, term: PlacementTerm, strategy: Strategy, number: int, servers: int) -> DirectoryServer:
        """Create an empty share of a directory as server ``number`` of ``servers``; return the server."""
        share = self._shares[pair] = _Share(term, make_server(strategy, number, servers), {})
        return share.server

    def on_update(self, update: ShareUpdate, number: int, servers: int, draw: float) -> list[SendToServer]:
        """Process an update of a coordinator or another server; return the messages for other servers.

        Updates of an older term, and ones that continue a term that this node does not have, are ignored.
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
        """Drop shares that have had no update for ``MAX_SILENT_ROUNDS`` calls."""
        for pair, share in list(self._shares.items()):
            share.silent_rounds += 1
            if share.silent_rounds > MAX_SILENT_ROUNDS:
                del self._shares[pair]

    def server(self, pair: str) -> DirectoryServer | None:
        """Return this node's server of a directory, or None."""
        share = self._shares.get(pair)
        return share.server if share else None

    def names(self, pair: str) -> tuple[str, ...]:
        """Return the names in this node's share of a directory; empty without a share."""
        share = self._shares.get(pair)
        return tuple(name.name for name in share.names.values()) if share else ()

    def find(self, pairs: Collection[str], required: frozenset[str], limit: int, draw: float) -> list[str]:
        """Return up to ``limit`` names that have all ``required`` pairs, from the smallest share of one of ``pairs``.

        ``required`` are the pairs' keys as entries contain them. Names are returned in the share's order from a random
        one on, so that all are equally likely.
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
