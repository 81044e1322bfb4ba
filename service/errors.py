"""Every error Coronet raises on purpose, in one tree that says who was at fault.

The three branches are :class:`UserError` (ask differently), :class:`PublisherError` (the same request may work later)
and :class:`OperationalError` (our side; retrying is right).

Errors cross process borders as :class:`Fault`: ``code`` names the class, ``detail`` the text,
``status`` that of a BadStatus; :func:`to_fault` and :func:`from_fault` convert.
Drivers' errors are translated at the edge of their room; bugs (``TypeError`` …) pass through.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

Values = Mapping[str, str | int]
"""What is put into an error's sentence, by name."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as a value, for wires and stores; ``sentence`` and ``values`` where ``detail`` was made of them."""

    code: str
    detail: str
    status: int = 0
    sentence: str = ""
    values: dict[str, str | int] = {}


_KINDS: "dict[str, type[CoronetError]]" = {}


class CoronetError(Exception):
    """Root of the tree. ``str(error)`` says what happened, to what, and what to do."""

    code: ClassVar[str] = "error"

    def __init_subclass__(cls, *, code: str) -> None:
        """Register the class under its code, which clients of the API know: a code stays when its class is renamed."""
        cls.code = code
        _KINDS[code] = cls

    def __init__(self, sentence: str = "", /, **values: str | int) -> None:
        """Keep the sentence and what is put into it, ``{name}`` by ``{name}``: it may be said in other languages.

        Without values the sentence is taken as it is.
        """
        written = {name: f"{value:,}" if isinstance(value, int) else value for name, value in values.items()}
        super().__init__(sentence.format(**written) if values else sentence)
        self.sentence = sentence
        self.values: Values = values


class UserError(CoronetError, code="user-error"):
    """The request itself cannot be carried out."""


class BadUrl(UserError, code="bad-url"):
    """The text is not a URL that can be watched."""


class AddressRefused(UserError, code="address-refused"):
    """The socket guard refused the address or port."""


class NotSubscribed(UserError, code="not-subscribed"):
    """No such subscription, or not this user's: one answer for both."""


class LimitReached(UserError, code="limit-reached"):
    """One of the user's limits is used up, or how often a publisher may be asked."""


class HostBlocked(UserError, code="host-blocked"):
    """Admins want a host, or the domain that it is of, to be asked for nothing."""


class BadKey(UserError, code="bad-key"):
    """Not an identifier key, or not a key group's label, of as many bits as this store's keys have."""


class UnknownKeyspace(UserError, code="unknown-keyspace"):
    """A keyspace's number is not one of this store's."""


class NotFound(UserError, code="no-such-thing"):
    """What is named is not there: an account, a person; it may have been removed."""


class PermissionDenied(UserError, code="not-allowed"):
    """Who asks may not do this; the text says who may."""


class UsageError(UserError, code="wrong-use"):
    """No such command, or not with these arguments; the text says which there are."""


class BadQuery(UserError, code="bad-query"):
    """Not something that can be searched for, or watched; the text says why, and what can."""


class PublisherError(CoronetError, code="publisher-error"):
    """The publisher's side failed."""


class FetchError(PublisherError, code="fetch-error"):
    """No usable HTTP answer."""


class HostNotFound(FetchError, code="host-not-found"):
    """The host's name does not resolve."""


class Unreachable(FetchError, code="unreachable"):
    """Refused, reset, no route, or too slow."""


class TlsFailed(FetchError, code="tls-failed"):
    """The certificate or the handshake is wrong."""


class BadStatus(FetchError, code="bad-status"):
    """An HTTP status other than 200 and 304."""

    def __init__(self, message: str, *, status: int = 0, retry_after_s: float | None = None) -> None:
        """Keep the status and the publisher's ``Retry-After`` (seconds), if it gave one."""
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class BadRedirect(FetchError, code="bad-redirect"):
    """A redirect that cannot or must not be followed."""


class BadHttp(FetchError, code="bad-http"):
    """The answer is not valid HTTP, or its encoding is unknown or broken."""


class TooLarge(FetchError, code="too-large"):
    """Headers or body exceed the cap."""


class FeedError(PublisherError, code="feed-error"):
    """The body arrived and cannot be used."""


class EmptyBody(FeedError, code="empty-body"):
    """There is nothing in it."""


class NotAFeed(FeedError, code="not-a-feed"):
    """It is readable, but not a feed, and it names none."""


class ListOfFeeds(FeedError, code="list-of-feeds"):
    """It is a list of feeds (OPML): not to be watched itself, but imported."""


class BrokenFeed(FeedError, code="broken-feed"):
    """It looks like a feed and cannot be read."""


class ParseKilled(FeedError, code="parse-killed"):
    """The parser used up the time or memory one body gets."""


class OperationalError(CoronetError, code="operational-error"):
    """Our side failed; trying again is right."""


class ParserBusy(OperationalError, code="parser-busy"):
    """Too many lists of feeds are being read at once."""


class StoreUnavailable(OperationalError, code="store-unavailable"):
    """Redis cannot be reached, or refuses the write."""


class StoreIdentityMismatch(StoreUnavailable, code="store-refused"):
    """The store lost data, or is another fleet's: it is not used until the operator accepts it."""


class NoWorker(OperationalError, code="no-worker"):
    """No worker took the request in time."""


class AssignmentPending(OperationalError, code="not-settled"):
    """How a channel is polled has not been decided yet: it is new, or nodes have just come or gone."""


class LeaseLost(OperationalError, code="lease-lost"):
    """The lease or epoch we acted under is no longer ours."""


class StaleVersion(OperationalError, code="stale-version"):
    """A delta was made against an older version than the channel's."""

    def __init__(self, message: str, *, current: int = 0) -> None:
        """Keep the channel's current version."""
        super().__init__(message)
        self.current = current


class MoveRefused(OperationalError, code="step-refused"):
    """A key group cannot be split, merged or moved that way, or not while another move is under way."""


class BadStrategy(OperationalError, code="bad-strategy"):
    """A partial lookup's strategy has a number that makes no sense, or a server got another strategy's message."""


class CellsUnavailable(OperationalError, code="cells-lost"):
    """The cells that a name should go to, or be looked for in, were not there, again and again."""


class KeyGroupMoving(OperationalError, code="groups-moving"):
    """Every keyspace that was asked for a key sent us elsewhere."""


class UploadRefused(OperationalError, code="upload-refused"):
    """The XMPP server does not take a file of ours, or not now; the text says why."""


class PeerUnreachable(OperationalError, code="peer-silent"):
    """Another worker cannot be reached, or takes too long: what it was asked for is to be had elsewhere."""


class PeerProtocolError(OperationalError, code="peer-refused"):
    """Another worker sent what cannot be right, is too large, or is meant for another shape of filters."""

    def __init__(self, message: str, *, reason: str = "") -> None:
        """Keep the reason, one word, by which such messages are counted."""
        super().__init__(message)
        self.reason = reason


def to_fault(error: CoronetError) -> Fault:
    """Return the error as a value."""
    status = error.status if isinstance(error, BadStatus) else 0
    return Fault(error.code, str(error), status, error.sentence if error.values else "", dict(error.values))


def from_fault(fault: Fault) -> CoronetError:
    """Return the error a fault stands for; an unknown code becomes the root class."""
    if fault.code == BadStatus.code:
        return BadStatus(fault.detail, status=fault.status)
    kind = _KINDS.get(fault.code, CoronetError)
    return kind(fault.sentence, **fault.values) if fault.values else kind(fault.detail)
