"""The product's words as immutable values. Times are Unix seconds (float) unless named otherwise."""

from typing import Literal

import msgspec

ChannelId = str
"""40 lower-case hex digits: SHA-1 of the canonical URL, a point of the overlay's id space."""

NodeId = str
"""40 lower-case hex digits, in the same space."""

UserId = str
"""16 characters, derived from the bare JID; see :func:`service.store.keys.user_id`."""


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


class ParsedFeed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A feed document: at most 500 entries, in document order."""

    title: str = ""
    link: str = ""
    id: str = ""
    language: str = ""
    entries: tuple[ParsedEntry, ...] = ()
    ttl_s: float | None = None


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item as Coronet keeps and sends it: identified, sanitised to plain text, short.

    ``key`` is its identity within the channel (see ``service.feeds.identity``); ``summary`` is
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
    """One difference between two versions (Corona §3.4): where, what, and of which kind."""

    kind: Literal["addition", "omission", "replacement"]
    entry: Entry


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What changed between ``base_version`` and ``version`` of a channel, oldest entry first.

    ``version`` is 0 until the owner has versioned it. ``initial`` marks a channel's first
    snapshot (its latest entries, never delivered as news). ``detected_s`` is when a node saw it.
    """

    channel: ChannelId
    base_version: int
    version: int
    detected_s: float
    changes: tuple[Change, ...]
    initial: bool = False


class Validators(msgspec.Struct, frozen=True, omit_defaults=True):
    """What makes the next fetch conditional, and the SHA-256 (hex) of the body it belongs to."""

    etag: str = ""
    last_modified: str = ""
    body_sha256: str = ""


class Channel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A URL that is watched.

    ``private`` says that its publisher's address is not public (only under ``allow_private``).
    ``listed`` is set by an admin: it is polled even without subscribers. ``dormant``: nobody polls
    it; what it lists at its next poll is taken in silently.
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


class Subscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """One user's wish to be told about one channel.

    ``number`` is the user's own short id for it (``#3``). ``seq`` orders this user's changes of
    mind about the channel. ``seen_version`` is the last version put into the user's outbox, or
    the version at which they joined.
    """

    channel: ChannelId
    number: int
    seq: int
    seen_version: int
    since_s: float


class PollResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one poll ended. ``outcome`` is ``new``, ``unchanged``, or an error's code."""

    node: NodeId
    at_s: float
    outcome: str
    status: int = 0
    detail: str = ""
    took_s: float = 0.0
    size_bytes: int = 0


class NodeInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker as its lease describes it. ``epoch`` grows with every join in the fleet."""

    id: NodeId
    epoch: int
    name: str
    joined_s: float
    metrics_url: str = ""


class FeedLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """A feed that a page names (autodiscovery): its canonical URL, and its title in plain text."""

    url: str
    title: str = ""
