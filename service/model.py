"""Immutable value types shared by all programs: feeds, pages, entries, changes, channels, subscriptions, nodes.

Times are Unix seconds (float) unless the name says otherwise. A type is excluded from garbage collection (``gc=False``)
if a worker holds tens of thousands of its instances, and they cannot be part of a reference cycle. Each instance is
then 16 bytes smaller, and garbage collections do not visit it.
"""

import hashlib
from typing import Literal

import msgspec

ChannelId = str
"""40 lower-case hex digits: SHA-1 of the canonical URL, used as an identifier in the overlay's id space."""

NodeId = str
"""40 lower-case hex digits: the node's identifier in the overlay's id space, which it shares with channels."""

UserId = str
"""16 characters, derived from the bare JID; see :func:`service.store.client.keys.user_id`."""


class ParsedEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a feed document, before Coronet identifies and sanitises it; the length of texts is limited.

    ``summary`` and ``content`` may contain the publisher's unsanitised HTML; ``published`` and ``updated`` are Unix
    seconds, or None if absent or invalid.
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
    """The polling frequency that a publisher requests, in the feed document and in the HTTP response with it.

    - ``ttl_s`` is RSS's ``ttl``.
    - ``update_period_s`` is the syndication module's ``updatePeriod`` divided by its ``updateFrequency``.
    - ``skip_hours`` are hours of the day (0 to 23, UTC) without updates.
    - ``skip_days`` are days of the week (0 is Monday, UTC) without updates.
    - ``max_age_s`` is the time in seconds for which the HTTP response is fresh (RFC 9111).
    """

    ttl_s: float | None = None
    update_period_s: float | None = None
    skip_hours: tuple[int, ...] = ()
    skip_days: tuple[int, ...] = ()
    max_age_s: float | None = None


class FeedMetadata(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The categories of a feed, and the software that generated it, as its document states them.

    ``generator`` is the software's name or URL, often followed by its version.
    """

    tags: tuple[str, ...] = ()
    generator: str = ""


class ParsedFeed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parsed feed document with at most 500 entries, in document order. All URLs are absolute.

    - ``hubs`` are the WebSub hubs that the document names.
    - ``topic`` is the document's own URL, as the document states it.
    - ``older_url`` is the URL of the next document with older entries (RFC 5005 §3 and §4).
    - ``element_hashes``, if requested, has one hash for each entry in document order. It includes the entries that are
      omitted from ``entries`` because they are unchanged since the channel's last document.
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
    element_hashes: tuple[bytes, ...] = ()
    metadata: FeedMetadata = FeedMetadata()


class ParsedPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The main content of a page as at most 20,000 normalised, non-empty lines of plain text.

    ``headings`` are the indexes of the lines that are headings.
    """

    title: str = ""
    lines: tuple[str, ...] = ()
    headings: tuple[int, ...] = ()


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry as stored and delivered, sanitised to plain text of limited length.

    - ``key`` is its identity within the channel (see ``service.feeds.entries.entry_identity``).
    - ``summary`` is plain text of at most 600 characters.
    - ``link`` is an absolute http(s) URL, or empty.
    """

    key: str
    title: str = ""
    link: str = ""
    summary: str = ""
    authors: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    published: float | None = None


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference between two versions of a channel (Corona §3.4).

    In a feed, ``entry`` is the new or edited entry. A replacement is an edit of an entry from an earlier version.

    In a page, ``entry`` contains the changed block. ``line`` is the number (from 1) of the block's first line in the
    new version; for an omission, in the old version.

    ``before`` is the text that a replacement replaced, shortened.
    """

    kind: Literal["addition", "omission", "replacement"]
    entry: Entry
    line: int = 0
    before: str = ""


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A notification to subscribers about their channel's state, not its content; each subscriber receives it once.

    The kinds are:

    - ``dead``: several nodes agree that the channel has failed permanently.
    - ``back``: the channel works again.
    - ``moved``: the channel is polled at another URL from now on. ``detail`` is the new URL.
    - ``quarantined``: the channel's documents exceed the parser's limits.

    For other kinds than ``moved``, ``detail`` is one sentence for people.
    """

    kind: Literal["dead", "back", "moved", "quarantined"]
    detail: str = ""


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The changes between two versions of a channel, oldest entry first.

    - ``base_version`` and ``version`` are the two versions. ``version`` is 0 until the channel's owner assigns one.
    - ``initial`` states that this is the first snapshot of a channel. Its entries are never delivered as news.
    - ``detected_s`` is the time of the poll that found the changes.
    - ``notice`` is a notification about the channel's state, or None. A delta with a notice has no changes.
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
        """The trace id of this delta in logs and spans, the same in every process: 32 hexadecimal digits."""
        return hashlib.sha256(f"{self.channel} {self.detected_s!r}".encode()).hexdigest()[:32]


class Validators(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """HTTP validators for a conditional request (RFC 9110 §8.8), and the SHA-256 (hex) of the body they describe."""

    etag: str = ""
    last_modified: str = ""
    body_sha256: str = ""


class Channel(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A URL that Coronet monitors, as a feed or as a page.

    - ``private`` states that the publisher's address was not public when the channel was created. Only the settings
      ``allowed_networks`` and ``allow_private`` permit such channels. All others are fetched from public addresses
      only.
    - ``listed`` states that an admin wants the channel polled even without subscribers.
    - ``dormant`` states that no node polls the channel. When polling resumes, the first content found is recorded
      without notifications.
    - ``condition`` is the state in the last notice to subscribers; it is empty if the channel works.
    - ``moved_to`` is the id of the channel that replaces this one.
    - ``language`` is the publisher's unvalidated language tag, such as ``en-GB``.
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
    """One user's subscription to one channel.

    - ``number`` is the short id shown to this user (``#3``).
    - ``seq`` orders this user's subscribe and unsubscribe operations on the channel.
    - ``seen_version`` is the last version that was queued in the user's outbox. At first, it is the channel's version
      at the time of the subscription.
    - ``paused_version`` is the last version that is delivered while the subscription is paused; later ones are
      withheld.
    """

    channel: ChannelId
    number: int
    seq: int
    seen_version: int
    since_s: float
    paused_version: int | None = None


class PollResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The result of one poll of a channel by ``node`` at ``at_s`` (Unix s).

    ``outcome`` is ``new``, ``unchanged``, or the code of an error (:mod:`service.errors`). ``took_s`` is the duration
    of the poll in seconds.
    """

    node: NodeId
    at_s: float
    outcome: str
    status: int = 0
    detail: str = ""
    took_s: float = 0.0
    size_bytes: int = 0


class NodeInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's node in the ring, the list of nodes with a valid lease.

    ``epoch`` increases with every join of a node to the fleet. ``process`` is the unique name of this run of the worker
    process; "" if it is unknown.
    """

    id: NodeId
    epoch: int
    name: str
    joined_s: float
    metrics_url: str = ""
    process: str = ""


class FeedLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """A feed to which a page links (autodiscovery): its canonical URL, and its title in plain text."""

    url: str
    title: str = ""
