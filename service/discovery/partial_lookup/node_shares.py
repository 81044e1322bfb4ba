"""A node's shares of directories, lookups in these shares, and the messages that nodes exchange about them.

A *directory* has the names of one AV-pair, divided among servers, one server per node. A *share* is the part of a
directory that one server stores. A *directory message* is a batch of updates and reports about directories that one
process sends to a node.

An entry of a directory consists of a name and the weight of the directory's own AV-pair. The name's other pairs are not
part of the entry, so a change of them does not change the entry. Lookups for several pairs need the other pairs, too;
each server reads those of the names in its share.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

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
    """Return the directory entry of a name with a weight from 0 to 255; entries sort by weight, then by name."""
    return f"{weight:0{_WEIGHT_DIGITS}x}{name}"


def entry_name_of(entry: str) -> str:
    """Return the name in an entry that :func:`encode_entry` has encoded."""
    return entry[_WEIGHT_DIGITS:]


class PlacementTerm(msgspec.Struct, frozen=True, order=True):
    """The version of a directory's placement (how its entries are distributed over servers); greater is newer.

    ``ring`` is the version of the ring (the list of live nodes). ``placed`` is the number of placements since the ring
    got this version.
    """

    ring: int
    placed: int


class ShareUpdate(msgspec.Struct, frozen=True, tag="Told"):
    """An update from a coordinator or a server to one server of the directory of the AV-pair ``pair``.

    - ``term`` and ``strategy`` are the version and the strategy of the placement to which the update belongs.
    - ``messages`` change the server's share. Without messages, the update only states that the share is still needed.
    - ``number`` counts the coordinator's updates to this server since the placement, from 0 on, so that the server
      notices a missing one. It is None for updates from other servers.
    """

    pair: str
    term: PlacementTerm
    strategy: Strategy
    messages: tuple[Message, ...] = ()
    number: int | None = None

    @property
    def can_start(self) -> bool:
        """Whether a server can start a share with this update, because its first message has all entries to store."""
        return bool(self.messages) and isinstance(self.messages[0], Keep | KeepAt)


class ShareLost(msgspec.Struct, frozen=True, tag="Lost"):
    """A server's report to a directory's coordinator that it has missed an update and needs another placement."""

    pair: str
    term: PlacementTerm


class LookupCount(msgspec.Struct, frozen=True, tag="Asked"):
    """A client's report to a directory's coordinator about its lookups in this directory since its last report.

    ``pair`` is the directory's AV-pair, ``lookups`` is the number of lookups, and ``target`` is the largest number of
    entries that one of them requested.
    """

    pair: str
    lookups: int
    target: int


MessagePart = ShareUpdate | ShareLost | LookupCount
DirectoryMessage = list[MessagePart]


def encode_message(message: Sequence[MessagePart]) -> bytes:
    """Encode a directory message: all updates and reports that one process sends to a node at one time."""
    return msgspec.msgpack.encode(message)


def decode_message(payload: bytes) -> DirectoryMessage:
    """Decode a directory message; the result is empty if it is malformed or in the format of another version.

    Nothing is lost then, because senders repeat updates and reports.
    """
    try:
        return msgspec.msgpack.decode(payload, type=DirectoryMessage)
    except msgspec.MsgspecError:
        return []


class NamesOfPair(msgspec.Struct, frozen=True):
    """The names with an AV-pair that have the greatest weights, and the number of all names with the pair.

    ``best`` has pairs (name, weight), the greatest weight first. ``total`` is the number of all names with the pair.
    ``mark`` is an opaque value that changes whenever the names change.
    """

    best: Sequence[tuple[str, int]]
    total: int
    mark: Hashable


class DirectoryAnnouncement(msgspec.Struct, frozen=True):
    """A coordinator's announcement to clients that an AV-pair has a directory.

    ``pair`` is the AV-pair. ``strategy`` was chosen from the measurements ``measured``. ``is_complete`` is False if the
    directory has only the best of the pair's names.
    """

    pair: str
    strategy: Strategy
    measured: DirectoryMeasurements
    is_complete: bool


class ShareMatches(msgspec.Struct, frozen=True):
    """The answer of a server to a lookup: its best names with all AV-pairs of the lookup, best first.

    ``examined`` is the number of entries that the server has compared with the lookup. If the server found fewer names
    than requested, it has compared all its entries.
    """

    names: tuple[str, ...] = ()
    examined: int = 0


MAX_SILENT_ROUNDS = 3
"""Number of maintenance rounds without an update after which a share is dropped."""
MIN_REREAD = 20
REREAD_SHARE = 0.02
"""Fraction of a share's names whose other AV-pairs are read again in one round, but at least ``MIN_REREAD`` names."""


class _Share(msgspec.Struct):
    term: PlacementTerm
    server: DirectoryServer
    next_number: int | None = 0
    """Number of the next update expected from the coordinator; None if an update was missed."""
    silent_rounds: int = 0
    pairs: dict[str, frozenset[str]] = {}
    """All AV-pairs of each name that has been read, the name that was read longest ago first."""
    ranked: list[str] = []
    """The names of the share, the greatest weight first."""


class NodeShares:
    """The shares of directories that one node stores."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}

    def start(self, pair: str, term: PlacementTerm, strategy: Strategy, number: int, servers: int) -> None:
        """Create an empty share of the directory of the AV-pair ``pair``, in place of an earlier share of it.

        This node is server ``number`` of ``servers``, counted from 0. ``term`` and ``strategy`` are those of the
        directory's placement.
        """
        former = self._shares.get(pair)
        self._shares[pair] = _Share(term, make_server(strategy, number, servers), pairs=former.pairs if former else {})

    def on_requests(self, pair: str, requests: Iterable[Request], draw: float) -> list[SendToServer]:
        """Process requests of a directory's coordinator that runs on this node; return the messages for other servers.

        The share must have been started. ``draw`` is a random number in [0, 1).
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
        self._rank(share)
        return outgoing

    def on_update(
        self, update: ShareUpdate, number: int, servers: int, draw: float
    ) -> tuple[list[SendToServer], ShareLost | None]:
        """Process an update from a coordinator or another server; return (messages for other servers, report).

        The report, for the coordinator, is None unless this server has missed an update or cannot process this one.
        This node is server ``number`` of ``servers``. ``draw`` is a random number in [0, 1). An update is ignored if
        its term is older than that of the share.
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
        """Sort the names of a share by weight, and delete the AV-pairs of names that the share no longer has."""
        share.ranked = [entry_name_of(entry) for entry in sorted(share.server.entries, reverse=True)]
        present = frozenset(share.ranked)
        share.pairs = {name: pairs for name, pairs in share.pairs.items() if name in present}

    def expire(self) -> None:
        """Drop the shares that received no update during the last ``MAX_SILENT_ROUNDS`` calls of this method."""
        for pair, share in list(self._shares.items()):
            share.silent_rounds += 1
            if share.silent_rounds > MAX_SILENT_ROUNDS:
                del self._shares[pair]

    def unread_names(self, *, reread: bool) -> list[str]:
        """Return the names whose AV-pairs have to be read, because they are unknown.

        With ``reread``, the result also has the names in each share that were read longest ago: a fraction of
        ``REREAD_SHARE``, but at least ``MIN_REREAD`` names.
        """
        wanted: dict[str, None] = {}
        for share in self._shares.values():
            wanted |= dict.fromkeys(name for name in share.ranked if name not in share.pairs)
            if reread:
                count = max(MIN_REREAD, int(REREAD_SHARE * len(share.pairs)))
                wanted |= dict.fromkeys(name for name, _ in zip(share.pairs, range(count), strict=False))
        return list(wanted)

    def set_pairs(self, pairs: Mapping[str, frozenset[str]]) -> None:
        """Store the AV-pairs of names that the caller has just read; ``pairs`` has the AV-pairs of each name."""
        for share in self._shares.values():
            for name in share.ranked:
                if name in pairs:
                    share.pairs.pop(name, None)
                    share.pairs[name] = pairs[name]

    def server(self, pair: str) -> DirectoryServer | None:
        """Return this node's server of the directory of an AV-pair; None if this node has no share of it."""
        share = self._shares.get(pair)
        return share.server if share else None

    def names(self, pair: str) -> tuple[str, ...]:
        """Return the ids of the names in this node's share of the directory of an AV-pair.

        The result is empty if this node has no share.
        """
        share = self._shares.get(pair)
        return tuple(share.ranked) if share else ()

    def find(self, pair: str, required: Collection[str], limit: int) -> ShareMatches:
        """Return up to ``limit`` names in the share of the directory of ``pair`` that have all ``required`` AV-pairs.

        Deviation from the paper: the names with the greatest weights are returned instead of random ones, because a
        search shows the best results first.
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
