"""Immutable value types shared by all programs: feeds, pages, entries, changes, channels, subscriptions, nodes.

Times are Unix seconds (float) unless the name says otherwise.

Some types are excluded from garbage collection (``gc=False``). Workers hold tens of thousands of their instances, which
cannot be part of a reference cycle. Each instance is then 16 bytes smaller, and garbage collections do not visit it.
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
    """One entry of a feed document, before it is identified and sanitised. The length of texts is limited.

    - ``summary``, ``content``: may contain the publisher's unsanitised HTML.
    - ``published``, ``updated``: Unix seconds, or None if absent or invalid.
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
    """The polling frequency that a publisher requests, in a feed document and its HTTP response.

    - ``ttl_s``: RSS's ``ttl``, in seconds.
    - ``update_period_s``: the syndication module's ``updatePeriod`` divided by its ``updateFrequency``, in seconds.
    - ``skip_hours``: hours of the day (0 to 23, UTC) without updates.
    - ``skip_days``: days of the week (0 is Monday, UTC) without updates.
    - ``max_age_s``: the time in seconds for which the HTTP response is fresh (RFC 9111).
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

    - ``hubs``: the WebSub hubs that the document names.
    - ``topic``: the document's own URL, as the document states it.
    - ``older_url``: the URL of the next document with older entries (RFC 5005 §3 and §4).
    - ``element_hashes``: one hash for each entry of the document, if the caller requested hashes. This includes entries
      that ``entries`` omits because they are unchanged since the channel's last document.
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

    - ``key``: its identity within the channel (:mod:`service.feeds.entries.entry_identity`).
    - ``summary``: plain text of at most 600 characters.
    - ``link``: an absolute http(s) URL, or empty.
    """

    key: str
    title: str = ""
    link: str = ""
    summary: str = ""
    authors: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    published: float | None = None


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference between two versions of a channel, a feed or page (Corona §3.4).

    - ``kind``: addition, omission or replacement. In a feed, a replacement is an edit of an earlier entry.
    - ``entry``: in a feed, the new or edited entry; in a page, the changed block of text.
    - ``line``: only in a page, the number (from 1) of the block's first line in the new version. For an omission, it is
      the number in the old version.
    - ``before``: the text that a replacement has replaced, shortened.
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

    For kinds other than ``moved``, ``detail`` is one sentence for people.
    """

    kind: Literal["dead", "back", "moved", "quarantined"]
    detail: str = ""


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The changes between two versions of a channel, oldest entry first.

    - ``base_version``, ``version``: the two versions. ``version`` is 0 until the channel's owner assigns one.
    - ``initial``: whether this is the first content of the channel that was found. Entries of such a delta are never
      delivered as news.
    - ``detected_s``: the time of the poll that found the changes.
    - ``notice``: a notification about the channel's state, or None. A delta with a notice has no changes.
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

    - ``private``: whether the publisher's address was not public when the channel was created. Only the settings
      ``allowed_networks`` and ``allow_private`` permit this. All other channels are fetched from public addresses only.
    - ``listed``: whether an admin wants the channel polled even without subscribers.
    - ``dormant``: whether no node polls the channel. When polling resumes, the first content found is recorded without
      notifications.
    - ``condition``: the state in the last notice to subscribers; empty if the channel works.
    - ``moved_to``: the id of the channel that replaces this one.
    - ``language``: the publisher's unvalidated language tag, such as ``en-GB``.
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

    - ``number``: the short id shown to this user (``#3``).
    - ``seq``: the order of this user's subscribe and unsubscribe operations on the channel.
    - ``seen_version``: the last version of the channel that was queued for the user. At first, it is the version at the
      time of the subscription.
    - ``paused_version``: the last version that is delivered while the subscription is paused. Later ones are withheld.
    """

    channel: ChannelId
    number: int
    seq: int
    seen_version: int
    since_s: float
    paused_version: int | None = None


class PollResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The result of one poll of a channel.

    - ``node``, ``at_s``: the node that polled, and the time (Unix s).
    - ``outcome``: ``new``, ``unchanged``, or the code of an error (:mod:`service.errors`).
    - ``took_s``: the duration of the poll in seconds.
    """

    node: NodeId
    at_s: float
    outcome: str
    status: int = 0
    detail: str = ""
    took_s: float = 0.0
    size_bytes: int = 0


class NodeInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's node in the ring, the list of live nodes.

    - ``epoch``: a number that increases each time that any node joins the fleet.
    - ``process``: the unique name of this run of the worker process; "" if it is unknown.
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
