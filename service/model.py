"""Immutable value types shared by all programs: feeds, pages, entries, changes, channels, subscriptions, nodes.

Times are Unix seconds (float) unless the name says otherwise.

Some types are excluded from garbage collection (``gc=False``), which makes each instance 16 bytes smaller and garbage
collections faster. Workers hold tens of thousands of these instances, and none of them can be part of a reference
cycle.
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


EXCERPT_CHARS = 600
"""Maximum length of the text of an entry that is kept among a channel's latest entries, compared and searched."""


class Enclosure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A file attached to an entry (RSS ``enclosure``).

    - ``url``: an absolute http or https URL.
    - ``type``: the media type, or only its first part, such as ``audio``; "" if it is unknown.
    - ``size_bytes``, ``duration_s``: as stated by the publisher; 0 if unknown.
    - ``title``: the title in plain text, or "".
    """

    url: str
    type: str = ""
    size_bytes: int = 0
    duration_s: int = 0
    title: str = ""

    @property
    def kind(self) -> str:
        """The first part of the media type, such as ``audio``; "" if the type is unknown."""
        return self.type.partition("/")[0]

    @property
    def is_playable(self) -> bool:
        """Whether the file is audio or video."""
        return self.kind in ("audio", "video")


class ParsedEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a feed document, before it is identified and sanitised. Texts are limited in length.

    - ``summary``, ``content``: texts that may contain the publisher's unsanitised HTML.
    - ``published``, ``updated``: the dates of the entry in Unix seconds, or None if absent or invalid.
    - ``enclosure``: the absolute URL of the first attached file, by which the entry may be identified, or "".
    - ``enclosures``: the attached files, except images; at most 4. They also include those of Media RSS.
    - ``image``: the absolute URL of the entry's image, or "".
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
    enclosures: tuple[Enclosure, ...] = ()
    image: str = ""


class PollingHints(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """When and how often a publisher wants to be polled, as stated in a feed document and its HTTP response.

    - ``ttl_s``: the ``ttl`` of an RSS feed, in seconds.
    - ``update_period_s``: the syndication module's ``updatePeriod`` divided by its ``updateFrequency``, in seconds.
    - ``skip_hours``: the hours of the day (0 to 23, UTC) in which the publisher wants no polls.
    - ``skip_days``: the days of the week (0 is Monday, UTC) on which the publisher wants no polls.
    - ``max_age_s``: for how many seconds the HTTP response is fresh (RFC 9111).
    """

    ttl_s: float | None = None
    update_period_s: float | None = None
    skip_hours: tuple[int, ...] = ()
    skip_days: tuple[int, ...] = ()
    max_age_s: float | None = None


class FeedMetadata(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The tags (categories) of a feed and the software that generated it, as stated in the feed document.

    ``generator`` is the software's name or URL, often followed by its version.
    """

    tags: tuple[str, ...] = ()
    generator: str = ""


class ParsedFeed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parsed feed document with at most 500 entries, in document order. All URLs are absolute.

    - ``hubs``: the WebSub hubs that the document names.
    - ``topic``: the URL of the feed as stated in the document, by which the hubs identify the feed.
    - ``older_url``: the URL of the document with the next older entries (RFC 5005 §3 and §4).
    - ``element_hashes``: one hash for each entry of the document, if the caller requested hashes. They cover even the
      unchanged entries, which ``entries`` may omit.
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
    """The main content of a page: at most 20,000 normalised, non-empty lines of plain text.

    ``headings`` are the indexes of the lines that are headings.
    """

    title: str = ""
    lines: tuple[str, ...] = ()
    headings: tuple[int, ...] = ()


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry as it is stored and delivered, sanitised to plain text of limited length.

    - ``key``: identifies the entry within the channel (:mod:`service.feeds.entries.entry_identity`).
    - ``summary``: plain text of at most 2,000 characters.
    - ``link``: an absolute http(s) URL, or empty.
    - ``image``: the absolute http(s) URL of the entry's image, or empty.
    - ``enclosures``: the attached files, except images; at most 4. A change of them is not an edit of the entry.
    - ``full_text``: text of the article to which the entry links, at most 2,000 characters; "" if it was not read.
    """

    key: str
    title: str = ""
    link: str = ""
    summary: str = ""
    authors: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    published: float | None = None
    image: str = ""
    enclosures: tuple[Enclosure, ...] = ()
    full_text: str = ""

    def excerpt(self) -> "Entry":
        """Return a copy with at most ``EXCERPT_CHARS`` characters of the summary, and without files and full text."""
        is_short = len(self.summary) <= EXCERPT_CHARS
        if is_short and not (self.image or self.enclosures or self.full_text):
            return self
        summary = self.summary if is_short else f"{self.summary[: EXCERPT_CHARS - 1].rstrip()}…"
        return msgspec.structs.replace(self, summary=summary, image="", enclosures=(), full_text="")

    @property
    def main_enclosure(self) -> Enclosure | None:
        """The first audio or video file; if there is none, the first attached file; None if there are no files."""
        return next((each for each in self.enclosures if each.is_playable), next(iter(self.enclosures), None))


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference between two versions of a channel, that is, of a feed or page (Corona §3.4).

    - ``kind``: addition, omission or replacement. In a feed, a replacement is an edit of an earlier entry.
    - ``entry``: for a feed, the new or edited entry; for a page, the changed block of text.
    - ``line``: for a page, the line number (from 1) at which the block begins in the new version or, for an omission,
      in the old version; 0 for a feed.
    - ``before``: the text that was replaced, shortened; empty unless the change is a replacement.
    """

    kind: Literal["addition", "omission", "replacement"]
    entry: Entry
    line: int = 0
    before: str = ""


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A notification to subscribers about the state of a channel. Each subscriber receives it once.

    The kinds are:

    - ``dead``: several nodes agree that the channel has failed permanently.
    - ``back``: the channel works again.
    - ``moved``: the channel is polled at another URL from now on. ``detail`` is the new URL.
    - ``quarantined``: the channel's documents exceed the parser's limits.
    - ``refused``: the publisher no longer accepts the channel's credential.

    For kinds other than ``moved``, ``detail`` is a sentence for human readers.
    """

    kind: Literal["dead", "back", "moved", "quarantined", "refused"]
    detail: str = ""


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The changes between two versions of a channel (a feed or page), oldest entry first.

    - ``base_version``, ``version``: the numbers of the old and the new version. ``version`` is 0 until the channel's
      owner, a worker node, assigns the number.
    - ``initial``: true for the first content found for the channel. Its entries are never delivered as news.
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
        """The trace id of this delta in logs and spans: 32 hexadecimal digits, the same in every process."""
        return hashlib.sha256(f"{self.channel} {self.detected_s!r}".encode()).hexdigest()[:32]


class Validators(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The HTTP validators for a conditional request (RFC 9110 §8.8), and the hash of the body that they describe.

    ``body_sha256`` is the SHA-256 of the body, in hex.
    """

    etag: str = ""
    last_modified: str = ""
    body_sha256: str = ""


class Channel(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A URL that Coronet monitors, as a feed or as a page.

    - ``private``: true if the publisher's address was not public when the channel was created, which is possible only
      with the setting ``allowed_networks`` or ``allow_private``. All other channels are fetched from public addresses
      only.
    - ``listed``: true if an admin wants the channel to be polled even without subscribers.
    - ``dormant``: true if polling of the channel is suspended on all nodes. When polling resumes, the first content
      found is recorded without notifying anyone.
    - ``condition``: the state announced in the last notice to subscribers; empty if the channel works.
    - ``moved_to``: the id of the channel that replaces this one; empty if there is none.
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
    condition: Literal["", "dead", "quarantined", "refused"] = ""
    moved_to: ChannelId = ""
    language: str = ""


class Subscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """One user's subscription to one channel.

    - ``number``: the short id by which this user refers to the subscription (``#3``).
    - ``seq``: a sequence number that orders this user's subscribe and unsubscribe operations on the channel.
    - ``seen_version``: the last version of the channel that was queued for the user. Initially, it is the channel's
      version at the time of subscription.
    - ``paused_version``: while the subscription is paused, the last version to be delivered; later versions are
      withheld. None if the subscription is not paused.
    """

    channel: ChannelId
    number: int
    seq: int
    seen_version: int
    since_s: float
    paused_version: int | None = None


class PollResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The result of one poll of a channel.

    - ``node``: the node that polled the channel.
    - ``at_s``: the Unix time of the poll.
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
    """One node of the ring, which is the list of live nodes. Each node is part of a worker process.

    - ``epoch``: the ring's version number after this node joined. Nodes that join later have a greater epoch.
    - ``process``: the unique name of this run of the worker process; "" if it is unknown.
    """

    id: NodeId
    epoch: int
    name: str
    joined_s: float
    metrics_url: str = ""
    process: str = ""


class FeedLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """A feed to which a page links (autodiscovery): the feed's canonical URL, and its title in plain text."""

    url: str
    title: str = ""
