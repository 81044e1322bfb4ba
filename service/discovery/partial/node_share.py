"""A node's shares of directories, lookups in these shares, and the messages that nodes exchange about them.

A *directory* has the names of one AV-pair, divided among servers, one server per node. A *share* is the part of a
directory that one server stores. A *letter* is all that one node sends to another about directories at one time. An
entry of a directory is the text of a content name with its pairs, so that a changed name is another entry.
"""

from collections.abc import Collection, Iterable

import msgspec

from service.discovery.partial.servers import DirectoryServer, Keep, KeepAt, Message, SendToServer, make_server
from service.discovery.partial.strategies import Strategy
from service.errors import BadStrategy


class ListedName(msgspec.Struct, frozen=True):
    """A content name in a directory: its id, its version, and the keys of all its AV-pairs."""

    name: str
    version: int
    pairs: frozenset[str]


def encode_entry(name: str, version: int, pairs: Iterable[str]) -> str:
    """Return a content name encoded as an entry of a directory; equal names, versions and pairs give equal entries."""
    return msgspec.json.encode((name, version, sorted(pairs))).decode()


def decode_entry(text: str) -> ListedName:
    """Return the content name that :func:`encode_entry` has encoded."""
    name, version, pairs = msgspec.json.decode(text, type=tuple[str, int, list[str]])
    return ListedName(name, version, frozenset(pairs))


class PlacementTerm(msgspec.Struct, frozen=True, order=True):
    """The number of a placement of a directory on its servers; terms are ordered, and a greater term is newer.

    ``ring`` is the version of the ring, and ``placed`` is the number of placements since the ring had that version.
    """

    ring: int
    placed: int


class ShareUpdate(msgspec.Struct, frozen=True, tag="Told"):
    """Messages for one server about the directory of the AV-pair ``pair``.

    ``term`` and ``strategy`` are those of the placement that the messages change. An update without messages only
    states that the share is still needed.
    """

    pair: str
    term: PlacementTerm
    strategy: Strategy
    messages: tuple[Message, ...] = ()

    @property
    def can_start(self) -> bool:
        """Whether a server can start its share with this update: its first message has all entries to store."""
        return bool(self.messages) and isinstance(self.messages[0], Keep | KeepAt)


class LookupCount(msgspec.Struct, frozen=True, tag="Asked"):
    """A node's report to a directory's coordinator about its lookups in this directory since its last report.

    ``pair`` is the directory's AV-pair, ``lookups`` is the number of lookups, and ``target`` is the largest number of
    entries that one of them wanted.
    """

    pair: str
    lookups: int
    target: int


Letter = list[ShareUpdate | LookupCount]


def encode_letter(letter: Letter) -> bytes:
    """Encode a letter: all updates and reports that one node sends to another at one time."""
    return msgspec.msgpack.encode(letter)


def decode_letter(payload: bytes) -> Letter:
    """Decode a letter; the result is empty if the letter is malformed or in the format of another version.

    Nothing is lost for long, because its sender repeats the content.
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
    """The shares of directories that one node stores; they are valid for one version of the ring."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}

    def start(self, pair: str, term: PlacementTerm, strategy: Strategy, number: int, servers: int) -> DirectoryServer:
        """Create an empty share of the directory of the AV-pair ``pair``, and return the server that stores it.

        It replaces an earlier share of this directory. This node is server ``number`` of ``servers``, counted from 0.
        ``term`` and ``strategy`` are those of the directory's placement.
        """
        share = self._shares[pair] = _Share(term, make_server(strategy, number, servers), {})
        return share.server

    def on_update(self, update: ShareUpdate, number: int, servers: int, draw: float) -> list[SendToServer]:
        """Process an update from a coordinator or another server; return the messages for other servers.

        This node is server ``number`` of ``servers``. ``draw`` is a random number in [0, 1). An update is ignored if
        its term is older than that of the share, or if this node has not received the first update of its term.
        """
        share = earlier = self._shares.get(update.pair)
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
            known = earlier.names if earlier else {}  # most names of a new placement are those of the one before
            share.names = {text: known.get(text) or decode_entry(text) for text in share.server.entries}
        return sends

    def expire(self) -> None:
        """Drop the shares that received no update during the last ``MAX_SILENT_ROUNDS`` calls of this method."""
        for pair, share in list(self._shares.items()):
            share.silent_rounds += 1
            if share.silent_rounds > MAX_SILENT_ROUNDS:
                del self._shares[pair]

    def server(self, pair: str) -> DirectoryServer | None:
        """Return this node's server of the directory of an AV-pair; None if this node has no share of it."""
        share = self._shares.get(pair)
        return share.server if share else None

    def names(self, pair: str) -> tuple[str, ...]:
        """Return the ids of the names in this node's share of the directory of an AV-pair.

        The result is empty if this node has no share.
        """
        share = self._shares.get(pair)
        return tuple(name.name for name in share.names.values()) if share else ()

    def find(self, pairs: Collection[str], required: frozenset[str], limit: int, draw: float) -> list[str]:
        """Return up to ``limit`` names that have all ``required`` pairs, from this node's smallest share.

        Only shares of the directories of ``pairs`` are considered. ``required`` are the keys of AV-pairs as entries
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
