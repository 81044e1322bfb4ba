"""The shares of directories that one node stores, and the messages that nodes exchange about them.

- A *directory* has the names (channels or entries) with one attribute-value pair. It is divided among servers, one
  server per node.
- A *share* is the part of a directory that one server stores.
- An *entry* of a directory is a name with its weight for this pair. The name's other pairs are not part of the entry,
  so the entry does not change when they change.
- A *directory message* is a batch of updates and reports that one process sends to a node.

A lookup for several pairs also needs the other pairs of the names. Each server therefore reads all pairs of the names
in its share.
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
    """Return a directory entry: a name with a weight from 0 to 255, as one text.

    Entries sort by weight, then by name.
    """
    return f"{weight:0{_WEIGHT_DIGITS}x}{name}"


def entry_name_of(entry: str) -> str:
    """Return the name in a directory entry that :func:`encode_entry` has returned."""
    return entry[_WEIGHT_DIGITS:]


class PlacementTerm(msgspec.Struct, frozen=True, order=True):
    """The version of a directory's placement, the distribution of its entries over servers. A greater term is newer.

    - ``ring``: the version of the ring (the list of live nodes).
    - ``placed``: the number of placements since the ring got this version.
    """

    ring: int
    placed: int


class ShareUpdate(msgspec.Struct, frozen=True, tag="Told"):
    """An update for one server of a directory, from the directory's coordinator or another server.

    - ``pair``: the attribute-value pair of the directory.
    - ``term``, ``strategy``: the version and the strategy of the placement (distribution over servers) to which the
      update belongs.
    - ``messages``: changes of the entries that the server stores. If empty, the update only states that the server's
      entries are still needed.
    - ``number``: the number of this update in the sequence that the coordinator has sent to this server since the
      placement. The first is 0. A gap shows that an update is missing. None in updates from other servers.
    """

    pair: str
    term: PlacementTerm
    strategy: Strategy
    messages: tuple[Message, ...] = ()
    number: int | None = None

    @property
    def can_start(self) -> bool:
        """Whether an empty server can start with this update, because its first message has all entries to store."""
        return bool(self.messages) and isinstance(self.messages[0], Keep | KeepAt)


class ShareLost(msgspec.Struct, frozen=True, tag="Lost"):
    """A server's report to a directory's coordinator that it has missed an update.

    The coordinator then sends all entries again.
    """

    pair: str
    term: PlacementTerm


class LookupCount(msgspec.Struct, frozen=True, tag="Asked"):
    """A client's report to a directory's coordinator about its lookups since its last report.

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
    """Encode a directory message: all updates and reports that one process sends to a node at one time."""
    return msgspec.msgpack.encode(message)


def decode_message(payload: bytes) -> DirectoryMessage:
    """Decode a directory message to its updates and reports.

    The result is empty if the message is malformed or in the format of another version. Nothing is lost then, because
    senders repeat updates and reports.
    """
    try:
        return msgspec.msgpack.decode(payload, type=DirectoryMessage)
    except msgspec.MsgspecError:
        return []


class NamesOfPair(msgspec.Struct, frozen=True):
    """The names (channels or entries) of an attribute-value pair: the best of them, and the number of all.

    - ``best``: tuples (name, weight of the pair in the name), the greatest weight first.
    - ``total``: the number of all names with the attribute-value pair.
    - ``mark``: an opaque value that changes whenever the names change.
    """

    best: Sequence[tuple[str, int]]
    total: int
    mark: Hashable


class DirectoryAnnouncement(msgspec.Struct, frozen=True):
    """A coordinator's announcement to clients that an attribute-value pair has a directory.

    - ``pair``: the attribute-value pair.
    - ``strategy``: how the entries are distributed over servers. The coordinator has chosen this strategy because of
      the measurements ``measured``.
    - ``is_complete``: False if the directory has only the best of the names with the pair.
    """

    pair: str
    strategy: Strategy
    measured: DirectoryMeasurements
    is_complete: bool


class ShareMatches(msgspec.Struct, frozen=True):
    """The answer of a server to a lookup: its best names that match, best first.

    ``examined`` is the number of entries that the server has compared with the lookup. If it found fewer names than
    requested, it has compared all its entries.
    """

    names: tuple[str, ...] = ()
    examined: int = 0


MAX_SILENT_ROUNDS = 3
"""Number of maintenance rounds without an update after which a share (part of a directory) is dropped."""
MIN_REREAD = 20
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

        An earlier share of the directory is replaced. This node is server ``number`` of ``servers``, counted from 0.
        ``term`` and ``strategy`` are those of the directory's placement (distribution over servers).
        """
        former = self._shares.get(pair)
        self._shares[pair] = _Share(term, make_server(strategy, number, servers), pairs=former.pairs if former else {})

    def on_requests(self, pair: str, requests: Iterable[Request], draw: float) -> list[SendToServer]:
        """Process requests of a directory's coordinator that runs on this node; return the messages for other servers.

        The node's share (part) of the directory of ``pair`` must have been started before. ``draw`` is a random number
        in [0, 1).
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

        The report is for the coordinator. It is None unless this server has missed an update or cannot process this
        one. An update is ignored if its term (version of the placement) is older than that of the stored entries.

        This node is server ``number`` of ``servers``. ``draw`` is a random number in [0, 1).
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
        """Sort the names of a share (part of a directory) by weight.

        The attribute-value pairs of names that the share no longer has are deleted.
        """
        share.ranked = [entry_name_of(entry) for entry in sorted(share.server.entries, reverse=True)]
        present = frozenset(share.ranked)
        share.pairs = {name: pairs for name, pairs in share.pairs.items() if name in present}

    def expire(self) -> None:
        """Drop the shares (parts of directories) that are no longer updated.

        These have received no update during the last ``MAX_SILENT_ROUNDS`` calls of this method.
        """
        for pair, share in list(self._shares.items()):
            share.silent_rounds += 1
            if share.silent_rounds > MAX_SILENT_ROUNDS:
                del self._shares[pair]

    def unread_names(self, *, reread: bool) -> list[str]:
        """Return the names whose attribute-value pairs have to be read.

        These are the names whose pairs are unknown. With ``reread``, they are also those names in each share (part of a
        directory) that were read longest ago: a fraction of ``REREAD_SHARE``, but at least ``MIN_REREAD`` names.
        """
        wanted: dict[str, None] = {}
        for share in self._shares.values():
            wanted |= dict.fromkeys(name for name in share.ranked if name not in share.pairs)
            if reread:
                count = max(MIN_REREAD, int(REREAD_SHARE * len(share.pairs)))
                wanted |= dict.fromkeys(name for name, _ in zip(share.pairs, range(count), strict=False))
        return list(wanted)

    def set_pairs(self, pairs: Mapping[str, frozenset[str]]) -> None:
        """Store the attribute-value pairs of names that the caller has just read; ``pairs`` has those of each name."""
        for share in self._shares.values():
            for name in share.ranked:
                if name in pairs:
                    share.pairs.pop(name, None)
                    share.pairs[name] = pairs[name]

    def server(self, pair: str) -> DirectoryServer | None:
        """Return this node's server of the directory of an attribute-value pair.

        The result is None if this node stores no part of the directory.
        """
        share = self._shares.get(pair)
        return share.server if share else None

    def names(self, pair: str) -> tuple[str, ...]:
        """Return the ids of the names that this node stores of the directory of an attribute-value pair.

        The result is empty if this node stores no part of the directory.
        """
        share = self._shares.get(pair)
        return tuple(share.ranked) if share else ()

    def find(self, pair: str, required: Collection[str], limit: int) -> ShareMatches:
        """Return up to ``limit`` names that this node stores and that have all ``required`` attribute-value pairs.

        Only the directory of ``pair`` is searched. The names with the greatest weights are returned, because a search
        shows the best results first. Deviation: the paper returns random names.
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
