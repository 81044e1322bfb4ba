"""What a dialogue says in the end: a :data:`Reply`, which may be a :data:`Question`; no behaviour."""

from typing import Final

import msgspec

from bots.asking import Followed
from service.corona.reasons import Reason
from service.discovery.grammar import Finding, Query
from service.discovery.standing import Watch
from service.errors import CoronetError, UploadRefused
from service.filters import Rule
from service.habits import Habits
from service.model import Entry, FeedLink
from service.preferences import NONE, Preferences

Wishes = tuple[tuple[str, str], ...]


class Subscribed(msgspec.Struct, frozen=True):
    """It is watched. ``latest`` is the proof, newest first; None if the person wants none.

    ``discovered`` says that the URL was a page which named this feed, ``moved`` that the channel went to another URL;
    ``preferences`` are what was asked for with it.
    """

    followed: Followed
    new: bool
    latest: tuple[Entry, ...] | None
    discovered: bool = False
    moved: bool = False
    preferences: Preferences = NONE


class Choose(msgspec.Struct, frozen=True):
    """A question: which of these? ``wishes`` are what was asked for with it, as in a command."""

    options: tuple[FeedLink, ...]
    wishes: Wishes = ()


class Confirm(msgspec.Struct, frozen=True):
    """A question: really end all ``count`` subscriptions?"""

    count: int


class DidYouMean(msgspec.Struct, frozen=True):
    """A question: not understood, but perhaps ``command`` was meant?"""

    command: str


class OfferPage(msgspec.Struct, frozen=True):
    """A question: the page at this canonical URL names no feed; watch the page itself? ``wishes`` as above."""

    url: str
    wishes: Wishes = ()


class Found(msgspec.Struct, frozen=True):
    """A question: which of these? ``findings`` are all that were shown so far, ``before`` how many of them earlier.

    ``wanted`` is what the person wrote; ``more``: there are others.
    """

    wanted: str
    query: Query
    findings: tuple[Finding, ...]
    before: int
    more: bool


class WhichOne(msgspec.Struct, frozen=True):
    """A question: which of these is meant? ``command`` has ``{}`` where its number is to stand."""

    command: str
    options: tuple[Followed, ...]


class ReallyForget(msgspec.Struct, frozen=True):
    """A question: really delete everything about the person?"""


Question = Choose | Confirm | DidYouMean | OfferPage | Found | WhichOne | ReallyForget


class ForgottenMessage(msgspec.Struct, frozen=True):
    """We do not know any more what the message told that was reacted to."""


class Unsubscribed(msgspec.Struct, frozen=True):
    """These were ended."""

    ended: tuple[Followed, ...]


class NoSuchSubscription(msgspec.Struct, frozen=True):
    """Not found, or not yours: one answer for both."""


class Listing(msgspec.Struct, frozen=True):
    """``found`` of ``total`` subscriptions match ``wanted``."""

    found: tuple[Followed, ...]
    total: int
    wanted: str


class Shown(msgspec.Struct, frozen=True):
    """A channel's latest entries, newest first."""

    followed: Followed
    entries: tuple[Entry, ...]


class Reasoned(msgspec.Struct, frozen=True):
    """Why a channel is polled as it is; ``node`` is the URI of where it is published for everybody, or ""."""

    followed: Followed
    reason: Reason
    node: str = ""


class NothingMore(msgspec.Struct, frozen=True):
    """All that was found has been shown, or nothing was asked for."""


class Watching(msgspec.Struct, frozen=True):
    """It is watched for from now on."""

    watch: Watch


class Watches(msgspec.Struct, frozen=True):
    """What a person watches for."""

    watches: tuple[Watch, ...]


class Unwatched(msgspec.Struct, frozen=True):
    """It is watched for no more."""

    watch: Watch


class NoSuchWatch(msgspec.Struct, frozen=True):
    """Not found, or not yours: one answer for both."""


class StatusReport(msgspec.Struct, frozen=True):
    """``failing``: subscription, outcome of its last poll, and since when (Unix s)."""

    count: int
    workers: int
    failing: tuple[tuple[Followed, str, float], ...]


class HabitsTold(msgspec.Struct, frozen=True):
    """When the person is told; ``changed``: from now on."""

    habits: Habits
    changed: bool = False


class UnreadableTime(msgspec.Struct, frozen=True):
    """What stands after ``verb`` is no time, no days, or not what goes with it."""

    verb: str
    words: str


class LanguageTold(msgspec.Struct, frozen=True):
    """Which language we speak with the person; ``changed``: from now on."""

    language: str
    changed: bool = False


class NoSuchLanguage(msgspec.Struct, frozen=True):
    """We speak no language of this name."""

    words: str


class NoSuchZone(msgspec.Struct, frozen=True):
    """No time zone, or several (``meant``), of this name."""

    words: str
    meant: tuple[str, ...]


class Explained(msgspec.Struct, frozen=True):
    """Help; of everything if ``topic`` is empty."""

    topic: str


class Incomplete(msgspec.Struct, frozen=True):
    """A verb came without what it needs."""

    verb: str


class SubscriptionsFull(msgspec.Struct, frozen=True):
    """No more than ``limit`` subscriptions."""

    limit: int


class NewUrlsUsedUp(msgspec.Struct, frozen=True):
    """No more than ``limit`` new URLs an hour."""

    limit: int


class TooFast(msgspec.Struct, frozen=True):
    """No more than ``limit`` commands a minute; said once, then silence."""

    limit: int


class NotAdmitted(msgspec.Struct, frozen=True):
    """The person may not use the bot; ``refused``: nor with the invitation that they sent."""

    refused: bool = False


class Admitted(msgspec.Struct, frozen=True):
    """The person may use the bot."""


class Exported(msgspec.Struct, frozen=True):
    """A person's subscriptions as OPML documents, each of which fits a message; ``refused``: no file, for that."""

    documents: tuple[str, ...]
    count: int
    refused: UploadRefused | None = None


class ExportedAsFile(msgspec.Struct, frozen=True):
    """A person's subscriptions as one OPML document, which lies at this URL."""

    url: str
    count: int


class ImportBegun(msgspec.Struct, frozen=True):
    """So many feeds of a list are being subscribed to; and what is wrong with it."""

    count: int
    problems: tuple[str, ...]


class Imported(msgspec.Struct, frozen=True):
    """What came of a list: new subscriptions, those that were there, and what failed, each with its address."""

    new: int = 0
    known: int = 0
    failed: tuple[tuple[str, CoronetError], ...] = ()

    def and_also(self, other: "Imported") -> "Imported":
        """Return both together."""
        return Imported(self.new + other.new, self.known + other.known, self.failed + other.failed)


class Forgotten(msgspec.Struct, frozen=True):
    """Everything about the person is deleted, but what admins have set for them: that is kept for some days."""

    kept_days: int = 0


class LetBe(msgspec.Struct, frozen=True):
    """The question is withdrawn, nothing was done."""


class Greeted(msgspec.Struct, frozen=True):
    """Who we are."""


class KeepsQuiet(msgspec.Struct, frozen=True):
    """Not understood several times in a row: nothing more is said before something is."""


class NothingToCancel(msgspec.Struct, frozen=True):
    """Somebody wants an end of something, but not of a question of ours."""


class NothingAsked(msgspec.Struct, frozen=True):
    """An answer without a question."""


class Paused(msgspec.Struct, frozen=True):
    """``meant`` are paused, of which ``fresh`` were not; ``everything``: and what is watched for."""

    fresh: tuple[Followed, ...]
    meant: tuple[Followed, ...]
    everything: bool


class Resumed(msgspec.Struct, frozen=True):
    """These are told again. ``versions`` came meanwhile and follow; ``unheard``, which watches met, do not."""

    resumed: tuple[Followed, ...]
    versions: int
    unheard: int
    everything: bool


class Preferred(msgspec.Struct, frozen=True):
    """What is wanted of one subscription, or of all (``followed`` is None); ``changed``: from now on.

    ``looks_s`` is how far apart looks at its channel are, if that was asked for and is known.
    """

    followed: Followed | None
    preferences: Preferences
    changed: bool = False
    looks_s: float | None = None


class NoSuchSetting(msgspec.Struct, frozen=True):
    """There is no setting of this name."""

    key: str


class UnreadableSetting(msgspec.Struct, frozen=True):
    """No value for this setting; ``strangers`` are variables of a template that do not exist."""

    key: str
    value: str
    strangers: tuple[str, ...] = ()


class Filters(msgspec.Struct, frozen=True):
    """The filters of one subscription, or of all (``followed`` is None); ``changed``: from now on."""

    followed: Followed | None
    rules: tuple[Rule, ...]
    changed: bool = False


class NoSuchFilter(msgspec.Struct, frozen=True):
    """There is no filter of this number."""


class FiltersFull(msgspec.Struct, frozen=True):
    """No more than ``limit`` filters at one place."""

    limit: int


class OnlyManagers(msgspec.Struct, frozen=True):
    """In a room, only its owners and admins may do that."""


class NotUnderstood(msgspec.Struct, frozen=True):
    """It resembles nothing we know."""


class Failed(msgspec.Struct, frozen=True):
    """It could not be done; ``subject`` is what it was about (a URL), or empty."""

    error: CoronetError
    subject: str


Reply = (
    Subscribed | Choose | Confirm | DidYouMean | OfferPage | Found | WhichOne | ForgottenMessage | NothingMore
    | Watching | Watches
    | Unwatched | NoSuchWatch | Unsubscribed | NoSuchSubscription | Listing | Shown | Reasoned | StatusReport
    | HabitsTold | UnreadableTime | NoSuchZone | LanguageTold | NoSuchLanguage
    | Explained | Incomplete | SubscriptionsFull | NewUrlsUsedUp
    | Exported | ExportedAsFile | ImportBegun | Imported | ReallyForget | Forgotten | NotAdmitted | Admitted
    | Paused | Resumed | Preferred | NoSuchSetting | UnreadableSetting | Filters | NoSuchFilter
    | FiltersFull | TooFast | LetBe | Greeted | KeepsQuiet | NothingToCancel | NothingAsked | OnlyManagers
    | NotUnderstood | Failed
)  # fmt: skip

NOT_UNDERSTOOD: Final = (
    NotUnderstood, DidYouMean, Incomplete, Greeted, NothingAsked, NothingToCancel, NothingMore,
)  # fmt: skip
"""Replies to what is no command that can be carried out."""
NO_COMMAND: Final = (*NOT_UNDERSTOOD, OnlyManagers, NotAdmitted)
"""These, and to commands of people who may not give them: software, too, could say any of it again and again."""
