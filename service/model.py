"""The product's words as immutable values. Times are Unix seconds (float) unless named otherwise.

Those that a worker holds by the ten thousand, and that refer to nothing that could refer back, are left out of
garbage collection (``gc=False``): each is 16 bytes smaller, and no collection walks over them.
"""

import hashlib
from typing import Literal

import msgspec

ChannelId = str
"""40 lower-case hex digits: SHA-1 of the canonical URL, a point of the overlay's id space."""

NodeId = str
"""40 lower-case hex digits, in the same space."""

UserId = str
"""16 characters, derived from the bare JID; see :func:`service.store.client.keys.user_id`."""


class ParsedEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item of a feed as its document states it; every text field is plain ``str``, capped.

    ``summary`` and ``content`` may hold HTML as the publisher sent it (unsanitised);
    ``published`` and ``updated`` are Unix seconds, or None when absent or impossible.
    """

    id: str = ""
    link: str = ""
    title: str = ""
    summary: str = ""
    content: str = ""
    authors: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    published: float | None = None
    updated: float | None = None
    enclosure: str = ""


class PollingHints(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How often a publisher wants its feed to be asked for, as the document states it.

    ``ttl_s`` is RSS's ``ttl``; ``update_period_s`` is the syndication module's period divided by its
    frequency; ``skip_hours`` (0 to 23) and ``skip_days`` (0 is Monday) are in UTC.
    """

    ttl_s: float | None = None
    update_period_s: float | None = None
    skip_hours: tuple[int, ...] = ()
    skip_days: tuple[int, ...] = ()


class FeedMetadata(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a feed's document says of the feed itself besides its title: its categories, and the software that made it.

    ``generator`` is that software's name or URL, often with its version behind it.
    """

    tags: tuple[str, ...] = ()
    generator: str = ""


class ParsedFeed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A feed document: at most 500 entries, in document order.

    ``hubs`` (WebSub) tell of news of ``topic``, the document's own URL as it states it; ``older`` is where
    the feed goes on with older entries (RFC 5005 §3 and §4). All are absolute URLs. ``marks``, if asked for:
    one for each entry in document order, of those too that are not among ``entries`` because they are as
    they were in the channel's last document.
    """

    title: str = ""
    link: str = ""
    id: str = ""
    language: str = ""
    entries: tuple[ParsedEntry, ...] = ()
    polling_hints: PollingHints = PollingHints()
    hubs: tuple[str, ...] = ()
    topic: str = ""
    older_url: str = ""
    marks: tuple[bytes, ...] = ()
    metadata: FeedMetadata = FeedMetadata()


class ParsedPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page's core content as lines of plain text: normalised, none empty, at most 20,000.

    ``headings`` are the places (from 0) of the lines that are headings.
    """

    title: str = ""
    lines: tuple[str, ...] = ()
    headings: tuple[int, ...] = ()


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item as Coronet keeps and sends it: identified, sanitised to plain text, short.

    ``key`` is its identity within the channel (see ``service.feeds.entries.entry_identity``); ``summary`` is
    plain text of at most 600 characters; ``link`` is http(s) and absolute, or empty.
    """

    key: str
    title: str = ""
    link: str = ""
    summary: str = ""
    authors: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    published: float | None = None


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference between two versions (Corona §3.4): where, what, and of which kind.

    Of a feed, ``entry`` is the place and the content; a replacement is an edit of an entry that was told
    earlier. Of a page, ``entry`` holds the changed block and ``line`` (from 1) is where it begins: in the
    new version, or for an omission in the old one. ``before`` is what a replacement replaced, shortened.
    """

    kind: Literal["addition", "omission", "replacement"]
    entry: Entry
    line: int = 0
    before: str = ""


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What subscribers are told once of a channel itself, rather than of its content.

    ``dead``: several nodes agree that it broke for good; ``back``: it answers again; ``moved``: it is
    polled at another URL (``detail``) from now on; ``quarantined``: its documents use up our parsers.
    ``detail`` is one sentence for people, or the URL.
    """

    kind: Literal["dead", "back", "moved", "quarantined"]
    detail: str = ""


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What changed between ``base_version`` and ``version`` of a channel, oldest entry first.

    ``version`` is 0 until the owner has versioned it. ``initial`` marks a channel's first
    snapshot (its latest entries, never delivered as news). ``detected_s`` is when a node saw it.
    A delta with a ``notice`` has no changes.
    """

    channel: ChannelId
    base_version: int
    version: int
    detected_s: float
    changes: tuple[Change, ...]
    initial: bool = False
    notice: Notice | None = None

    @property
    def trace_id(self) -> str:
        """The id by which logs and traces call it, in every process: 32 hexadecimal digits."""
        return hashlib.sha256(f"{self.channel} {self.detected_s!r}".encode()).hexdigest()[:32]


class Validators(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What makes the next fetch conditional, and the SHA-256 (hex) of the body it belongs to."""

    etag: str = ""
    last_modified: str = ""
    body_sha256: str = ""


class Channel(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A URL that is watched.

    ``private`` says that its publisher's address is not public (only under ``allow_private``).
    ``listed`` is set by an admin: it is polled even without subscribers. ``dormant``: nobody polls
    it; what it lists at its next poll is taken in silently. ``condition`` is what subscribers were told
    last of the channel itself; empty when all is well. ``moved_to`` is the channel that took over; ``language`` is
    as the publisher states it, a tag like ``en-GB`` or whatever.
    """

    id: ChannelId
    url: str
    title: str = ""
    link: str = ""
    kind: Literal["feed", "page"] = "feed"
    version: int = 0
    created_s: float = 0.0
    private: bool = False
    listed: bool = False
    dormant: bool = False
    condition: Literal["", "dead", "quarantined"] = ""
    moved_to: ChannelId = ""
    language: str = ""


class Subscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """One user's wish to be told about one channel.

    ``number`` is the user's own short id for it (``#3``). ``seq`` orders this user's changes of
    mind about the channel. ``seen_version`` is the last version put into the user's outbox, or
    the version at which they joined; while it is paused, those after ``paused_version`` were withheld.
    """

    channel: ChannelId
    number: int
    seq: int
    seen_version: int
    since_s: float
    paused_version: int | None = None


class PollResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How one poll ended. ``outcome`` is ``new``, ``unchanged``, or an error's code."""

    node: NodeId
    at_s: float
    outcome: str
    status: int = 0
    detail: str = ""
    took_s: float = 0.0
    size_bytes: int = 0


class NodeInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node as its lease describes it. ``epoch`` grows with every join in the fleet.

    ``process`` names the worker's process, which has another name each time it starts; "" where that is not known.
    """

    id: NodeId
    epoch: int
    name: str
    joined_s: float
    metrics_url: str = ""
    process: str = ""


class FeedLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """A feed that a page names (autodiscovery): its canonical URL, and its title in plain text."""

    url: str
    title: str = ""
