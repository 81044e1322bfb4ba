"""A node's shares of directories, what it finds in them, and the letters that nodes send each other for them.

A directory's entry is a content name with its pairs in one text, so that a name that changes is another entry.
"""

from collections.abc import Collection, Iterable

import msgspec

from service.discovery.partial.servers import DirectoryServer, Keep, KeepAt, Message, Send, make_server
from service.discovery.partial.strategies import Strategy
from service.errors import BadStrategy


class ListedName(msgspec.Struct, frozen=True):
    """A name, its version, and the keys of all its pairs."""

    name: str
    version: int
    pairs: frozenset[str]


def encode_entry(name: str, version: int, pairs: Iterable[str]) -> str:
    """Return a name as a directory's entry; the same name, version and pairs always give the same."""
    return msgspec.json.encode((name, version, sorted(pairs))).decode()


def decode_entry(text: str) -> ListedName:
    """Return what an entry stands for."""
    name, version, pairs = msgspec.json.decode(text, type=tuple[str, int, list[str]])
    return ListedName(name, version, frozenset(pairs))


class PlacementTerm(msgspec.Struct, frozen=True, order=True):
    """Since when a directory's servers are what they are: the ring's version, and how often it was placed on it."""

    ring: int
    placed: int


class ShareUpdate(msgspec.Struct, frozen=True, tag="Told"):
    """Of one directory, for one server; without messages a sign of life."""

    pair: str
    term: PlacementTerm
    strategy: Strategy
    messages: tuple[Message, ...] = ()

    @property
    def begins(self) -> bool:
        """Whether a server can begin with this, because it says all that it has to keep."""
        return bool(self.messages) and isinstance(self.messages[0], Keep | KeepAt)


class LookupCount(msgspec.Struct, frozen=True, tag="Asked"):
    """To a directory's coordinator: how often this node was asked for it since the last time, and for how many."""

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
"""Upkeeps without a sign of life after which a share is forgotten."""


class _Share(msgspec.Struct):
    term: PlacementTerm
    server: DirectoryServer
    names: dict[str, ListedName]
    silent: int = 0


class NodeShares:
    """All shares of one node on one ring."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}

    def begin(self, pair: str, term: PlacementTerm, strategy: Strategy, me: int, servers: int) -> DirectoryServer:
        """Have an empty share of a directory from now on, as one of its servers; return that."""
        share = self._shares[pair] = _Share(term, make_server(strategy, me, servers), {})
        return share.server

    def told(self, told: ShareUpdate, me: int, servers: int, draw: float) -> list[Send]:
        """Take in what a coordinator, or another server, says; return what others are to be told.

        What is of an older term than ours, or goes on with one that we have not, is passed over.
        """
        share = self._shares.get(told.pair)
        if told.begins and (share is None or share.term < told.term):
            self.begin(told.pair, told.term, told.strategy, me, servers)
        share = self._shares.get(told.pair)
        if share is None or share.term != told.term:
            return []
        share.silent = 0
        try:
            sends = [send for message in told.messages for send in share.server.told(message, draw)]
        except BadStrategy:
            del self._shares[told.pair]
            return []
        if told.messages:
            known = share.names
            share.names = {text: known.get(text) or decode_entry(text) for text in share.server.entries}
        return sends

    def aged(self) -> None:
        """Forget what nobody has said anything of for ``MAX_SILENT_ROUNDS`` upkeeps."""
        for pair, share in list(self._shares.items()):
            share.silent += 1
            if share.silent > MAX_SILENT_ROUNDS:
                del self._shares[pair]

    def server(self, pair: str) -> DirectoryServer | None:
        """Return our server of a directory."""
        share = self._shares.get(pair)
        return share.server if share else None

    def names(self, pair: str) -> tuple[str, ...]:
        """Return the names in our share of a directory; none if we have no share."""
        share = self._shares.get(pair)
        return tuple(name.name for name in share.names.values()) if share else ()

    def find(self, pairs: Collection[str], wanted: frozenset[str], limit: int, draw: float) -> list[str]:
        """Return up to ``limit`` names that have all these pairs, from the smallest share of one of them.

        ``wanted`` are what stands for the pairs in entries. Names come in the share's order, from a random one on, so
        that each is as likely as any other.
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
            if wanted <= name.pairs:
                found[name.name] = None
        return list(found)
