"""The shares of directories that one node stores, and the messages that nodes exchange about them.

- A *directory* lists the names (channels or entries) with one attribute-value pair. It is divided among servers, one
  server per node.
- A *share* is the part of a directory that one server stores.
- An *entry* of a directory consists of a name, and the weight of the directory's pair in this name. It does not contain
  the name's other pairs, so it stays the same when they change.
- A *directory message* is a batch of updates and reports that one process sends to a node.

A lookup for several pairs also needs to know the names' other pairs. Each server therefore reads all pairs of the names
in its share.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence

import msgspec

from service.discovery.partial_lookup.servers import (
    DirectoryServer,
    Keep,
    KeepAt,
    Message,
    Request,
    SendToServer,
    make_server,
)
from service.discovery.partial_lookup.strategies import Strategy
from service.discovery.partial_lookup.strategy_choice import DirectoryMeasurements
from service.errors import BadStrategy

_WEIGHT_DIGITS = 2


def encode_entry(name: str, weight: int) -> str:
    """Encode a directory entry, which is a name with a weight from 0 to 255, as a string.

    Encoded entries sort by weight, then by name.
    """
    return f"{weight:0{_WEIGHT_DIGITS}x}{name}"


def entry_name_of(entry: str) -> str:
    """Return the name in a directory entry that :func:`encode_entry` has encoded."""
    return entry[_WEIGHT_DIGITS:]


class PlacementTerm(msgspec.Struct, frozen=True, order=True):
    """The version of a directory's placement, which is the distribution of its entries over servers.

    Terms are ordered: a greater term is newer.

    - ``ring``: the version of the ring (the list of live nodes).
    - ``placed``: how many times the entries have been placed since the ring got this version.
    """

    ring: int
    placed: int


class ShareUpdate(msgspec.Struct, frozen=True, tag="Told"):
    """An update for one server of a directory, from the directory's coordinator or another server.

    - ``pair``: the attribute-value pair of the directory.
    - ``term``: the version of the placement (distribution over servers) to which the update belongs.
    - ``strategy``: the strategy of this placement.
    - ``messages``: changes to the entries that the server stores. If empty, the update only confirms that the server's
      entries are still needed.
    - ``number``: the sequence number of this update, or None if another server has sent it. For each placement and
      server, the coordinator numbers its updates from 0. A gap shows that an update is missing.
    """

    pair: str
    term: PlacementTerm
    strategy: Strategy
    messages: tuple[Message, ...] = ()
    number: int | None = None

    @property
    def is_confirmation(self) -> bool:
        """Whether the update only confirms that the server's entries are still needed."""
        return not self.messages

    @property
    def can_start(self) -> bool:
        """Whether the update contains all entries to store, so that a server without entries can begin with it."""
        return bool(self.messages) and isinstance(self.messages[0], Keep | KeepAt)


class ShareLost(msgspec.Struct, frozen=True, tag="Lost"):
    """Tells a directory's coordinator that a server has missed an update or could not process it.

    The coordinator then sends all entries again.
    """

    pair: str
    term: PlacementTerm


class LookupCount(msgspec.Struct, frozen=True, tag="Asked"):
    """Tells a directory's coordinator how many lookups a client has made since the client's last report.

    - ``pair``: the attribute-value pair of the directory.
    - ``lookups``: the number of lookups.
    - ``target``: the largest number of entries that one of these lookups requested.
    """

    pair: str
    lookups: int
    target: int


MessagePart = ShareUpdate | ShareLost | LookupCount
DirectoryMessage = list[MessagePart]


def encode_message(message: Sequence[MessagePart]) -> bytes:
    """Encode a directory message: a batch of updates and reports that one process sends to a node."""
    return msgspec.msgpack.encode(message)


def decode_message(payload: bytes) -> DirectoryMessage:
    """Decode a directory message into its updates and reports.

    The result is empty if the message is malformed or was written by a version with another format. Nothing is lost
    permanently, because senders repeat updates and reports.
    """
    try:
        return msgspec.msgpack.decode(payload, type=DirectoryMessage)
    except msgspec.MsgspecError:
        return []


class NamesOfPair(msgspec.Struct, frozen=True):
    """The best names (channels or entries) that have an attribute-value pair, and how many names have it in total.

    - ``best``: tuples (name, weight of the pair in the name), in descending order of weight.
    - ``total``: the number of all names with the attribute-value pair.
    - ``mark``: an opaque value that changes whenever the names change.
    """

    best: Sequence[tuple[str, int]]
    total: int
    mark: Hashable


class DirectoryAnnouncement(msgspec.Struct, frozen=True):
    """Announces to clients that an attribute-value pair has a directory; sent by the directory's coordinator.

    - ``pair``: the attribute-value pair.
    - ``strategy``: how the entries are distributed over servers.
    - ``measured``: the measurements from which the coordinator has chosen the strategy.
    - ``is_complete``: False if the directory contains only the best names with the pair.
    """

    pair: str
    strategy: Strategy
    measured: DirectoryMeasurements
    is_complete: bool


class ShareMatches(msgspec.Struct, frozen=True):
    """A server's answer to a lookup: its best matching names, in descending order of weight.

    ``examined`` is the number of entries that the server has compared with the lookup. A server that returns fewer
    names than requested has compared all its entries.
    """

    names: tuple[str, ...] = ()
    examined: int = 0


MAX_SILENT_ROUNDS = 3
"""Number of maintenance rounds without an update after which a share (part of a directory) is dropped."""
MIN_REREAD = 5
REREAD_SHARE = 0.02
"""Fraction of the names in a share (part of a directory) whose AV-pairs are read again in one round.

The AV-pairs of at least ``MIN_REREAD`` names are read again.
"""


class _Share(msgspec.Struct):
    term: PlacementTerm
    server: DirectoryServer
    next_number: int | None = 0
    """Number of the next update expected from the coordinator; None if an update was missed."""
    silent_rounds: int = 0
    pairs: dict[str, frozenset[str]] = {}
    """All AV-pairs of each name whose pairs have been read. The name whose pairs were read longest ago comes first."""
    ranked: list[str] = []
    """The names of the share, the greatest weight first."""


class NodeShares:
    """The shares (parts of directories) that one node stores."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}

    def start(self, pair: str, term: PlacementTerm, strategy: Strategy, number: int, servers: int) -> None:
        """Create an empty share: this node's part of the directory of the attribute-value pair ``pair``.

        The new share replaces any earlier share of the same directory. This node is the server with index ``number``
        (from 0) out of ``servers``. ``term`` and ``strategy`` are the version and the strategy of the directory's
        placement (distribution over servers).
        """
        former = self._shares.get(pair)
        self._shares[pair] = _Share(term, make_server(strategy, number, servers), pairs=former.pairs if former else {})

    def on_requests(self, pair: str, requests: Sequence[Request], draw: float) -> list[SendToServer]:
        """Process requests from the coordinator of a directory; return the messages to send to other servers.

        The coordinator runs on this node. This node's share (part) of the directory of ``pair`` must already exist
        (see :meth:`start`). ``draw`` is a random number in [0, 1).
        """
        share = self._shares[pair]
        outgoing: list[SendToServer] = []
        for request in requests:
            under_way = share.server.on_request(request)
            while under_way:
                outgoing += [send for send in under_way if send.to != share.server.number]
                own = [send.message for send in under_way if send.to == share.server.number]
                under_way = [send for message in own for send in share.server.on_message(message, draw)]
        share.silent_rounds = 0
        if requests:
            self._rank(share)
        return outgoing

    def on_update(
        self, update: ShareUpdate, number: int, servers: int, draw: float
    ) -> tuple[list[SendToServer], ShareLost | None]:
        """Process an update from a coordinator or another server; return (messages for other servers, report).

        The report is a message to the coordinator if this server has missed an update or cannot process this one;
        otherwise None. An update is ignored if its term (version of the placement) is older than the term of the stored
        entries.

        ``draw`` is a random number in [0, 1). This node is the server with index ``number`` (from 0) out of
        ``servers``.
        """
        share = self._shares.get(update.pair)
        if share is not None and update.term < share.term:
            return [], None
        lost = ShareLost(update.pair, update.term)
        if share is None or share.term < update.term:
            if not update.can_start or update.number is None:
                return [], lost
            self.start(update.pair, update.term, update.strategy, number, servers)
            share = self._shares[update.pair]
        share.silent_rounds = 0
        if update.number is not None:
            share.next_number = update.number + 1 if share.next_number == update.number else None
        try:
            sends = [send for message in update.messages for send in share.server.on_message(message, draw)]
        except BadStrategy:
            del self._shares[update.pair]
            return [], lost
        if update.messages:
            self._rank(share)
        return sends, lost if share.next_number is None else None

    def _rank(self, share: _Share) -> None:
        """Sort the names of a share (part of a directory) by descending weight.

        Also forget the attribute-value pairs of names that are no longer in the share.
        """
        share.ranked = [entry_name_of(entry) for entry in sorted(share.server.entries, reverse=True)]
        present = frozenset(share.ranked)
        share.pairs = {name: pairs for name, pairs in share.pairs.items() if name in present}

    def expire(self) -> None:
        """Drop the shares (parts of directories) that are no longer updated.

        A share is dropped if it has received no update for more than ``MAX_SILENT_ROUNDS`` calls of this method.
        """
        for pair, share in list(self._shares.items()):
            share.silent_rounds += 1
            if share.silent_rounds > MAX_SILENT_ROUNDS:
                del self._shares[pair]

    def unread_names(self, *, reread: bool) -> list[str]:
        """Return the names (channels or entries) whose attribute-value pairs the caller should read.

        These are all names with unknown pairs. If ``reread`` is true, some names with known pairs are added, because
        their pairs may have changed. From each share (part of a directory), these are the names whose pairs were read
        longest ago. Their number is the fraction ``REREAD_SHARE`` of the share's names with known pairs, but at least
        ``MIN_REREAD``.
        """
        wanted: dict[str, None] = {}
        for share in self._shares.values():
            wanted |= dict.fromkeys(name for name in share.ranked if name not in share.pairs)
            if reread:
                count = max(MIN_REREAD, int(REREAD_SHARE * len(share.pairs)))
                wanted |= dict.fromkeys(name for name, _ in zip(share.pairs, range(count), strict=False))
        return list(wanted)

    def set_pairs(self, pairs: Mapping[str, frozenset[str]]) -> None:
        """Store the attribute-value pairs that the caller has just read; ``pairs`` maps each name to its pairs."""
        for share in self._shares.values():
            for name in share.ranked:
                if name in pairs:
                    share.pairs.pop(name, None)
                    share.pairs[name] = pairs[name]

    def server(self, pair: str) -> DirectoryServer | None:
        """Return this node's server for the directory of the attribute-value pair ``pair``.

        The result is None if this node stores no part of the directory.
        """
        share = self._shares.get(pair)
        return share.server if share else None

    def names(self, pair: str) -> tuple[str, ...]:
        """Return the ids of the names that this node stores for the directory of ``pair``, by descending weight.

        The result is empty if this node stores no part of the directory.
        """
        share = self._shares.get(pair)
        return tuple(share.ranked) if share else ()

    def find(self, pair: str, required: Collection[str], limit: int) -> ShareMatches:
        """Search this node's share of the directory of ``pair`` for names that have all ``required`` pairs.

        Return at most ``limit`` matching names: those with the greatest weights. Deviation: the paper returns random
        names. Here the best are needed, because a search shows the best results first.
        """
        share = self._shares.get(pair)
        if share is None:
            return ShareMatches()
        others = frozenset(required) - {pair}
        if not others:
            return ShareMatches(tuple(share.ranked[:limit]), min(limit, len(share.ranked)))
        found: list[str] = []
        examined = 0
        for name in share.ranked:
            if len(found) >= limit:
                break
            examined += 1
            if others <= share.pairs.get(name, frozenset()):
                found.append(name)
        return ShareMatches(tuple(found), examined)
