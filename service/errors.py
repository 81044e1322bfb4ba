"""The errors that Coronet raises on purpose, as a hierarchy ordered by responsibility.

It has three branches:

- :class:`UserError`: the request must change.
- :class:`PublisherError`: the same request may work later.
- :class:`OperationalError`: Coronet or its infrastructure failed, and the caller can retry.

Between processes, errors are sent as :class:`Fault`; :func:`to_fault` and :func:`from_fault` convert them. The package
that uses a driver translates the driver's errors. Bugs (``TypeError`` …) are not caught.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

Values = Mapping[str, str | int]
"""The values of the placeholders in an error's sentence, by name."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error in a form that can be sent to another process.

    - ``code``: identifies the error's class.
    - ``detail``: the error's text.
    - ``status``: the HTTP status of a :class:`BadStatus`.
    - ``sentence``, ``values``: the sentence and the values from which ``detail`` was formatted; empty if it was not
      formatted.
    """

    code: str
    detail: str
    status: int = 0
    sentence: str = ""
    values: dict[str, str | int] = {}


_CLASSES_BY_CODE: "dict[str, type[CoronetError]]" = {}


class CoronetError(Exception):
    """Base class of all errors of Coronet. ``str(error)`` states what happened, to what object, and what to do."""

    code: ClassVar[str] = "error"

    def __init_subclass__(cls, *, code: str) -> None:
        """Register the class under its code. Codes are part of the API: they do not change when a class is renamed."""
        cls.code = code
        _CLASSES_BY_CODE[code] = cls

    def __init__(self, sentence: str = "", /, **values: str | int) -> None:
        """Format the English ``sentence`` with ``values``, and store both so that the bot can translate the sentence.

        Integers get thousands separators. Without values, the sentence is used unchanged.
        """
        formatted = {name: f"{value:,}" if isinstance(value, int) else value for name, value in values.items()}
        super().__init__(sentence.format(**formatted) if values else sentence)
        self.sentence = sentence
        self.values: Values = values


class UserError(CoronetError, code="user-error"):
    """The request is invalid or not allowed; the user must change it."""


class BadUrl(UserError, code="bad-url"):
    """The text is not a URL that Coronet can monitor."""


class AddressRefused(UserError, code="address-refused"):
    """The address or port of an outgoing connection is not allowed (:mod:`service.net.address_guard`)."""


class NotSubscribed(UserError, code="not-subscribed"):
    """The subscription does not exist, or it belongs to another user; the error's text does not reveal which."""


class LimitReached(UserError, code="limit-reached"):
    """A user has used up a limit, or requests to a publisher's site have reached their maximum rate."""


class RequestsPaused(LimitReached, code="requests-paused"):
    """Requests to a channel or a site are paused for ``paused_s`` more seconds.

    The publisher or an admin has requested the pause.
    """

    def __init__(self, message: str = "", *, paused_s: float = 0.0) -> None:
        """Create the error; ``paused_s`` is the remaining time of the pause in seconds."""
        super().__init__(message)
        self.paused_s = paused_s


class HostBlocked(UserError, code="host-blocked"):
    """An admin blocked requests to this host or its domain."""


class BadKey(UserError, code="bad-key"):
    """The text is no identifier key or key-group label (CLASH), or has the wrong number of bits for this store."""


class UnknownKeyspace(UserError, code="unknown-keyspace"):
    """The number of the keyspace (a part of the store of subscriptions) is outside this store's range."""


class NotFound(UserError, code="no-such-thing"):
    """The named account, user or other object does not exist; it may have been removed."""


class PermissionDenied(UserError, code="not-allowed"):
    """The caller's role does not allow this operation; the error's text names a role that does."""


class UsageError(UserError, code="wrong-use"):
    """The command does not exist or does not take these arguments; the error's text lists the valid ones."""


class BadQuery(UserError, code="bad-query"):
    """The search query, saved search or filter rule is invalid; the error's text says why, and what is valid."""


class PublisherError(CoronetError, code="publisher-error"):
    """The publisher's server or document is at fault."""


class FetchError(PublisherError, code="fetch-error"):
    """The request got no usable HTTP response."""


class HostNotFound(FetchError, code="host-not-found"):
    """The host name does not resolve."""


class Unreachable(FetchError, code="unreachable"):
    """The connection was refused, reset, timed out, or has no route."""


class TlsFailed(FetchError, code="tls-failed"):
    """The TLS handshake failed or the certificate is not trusted."""


class BadStatus(FetchError, code="bad-status"):
    """The HTTP status is neither 200 nor 304."""

    def __init__(self, message: str, *, status: int = 0, retry_after_s: float | None = None, url: str = "") -> None:
        """Create the error.

        - ``status``: the HTTP status.
        - ``retry_after_s``: the value of the header ``Retry-After`` in seconds; None if there is none.
        - ``url``: the URL of the response, which may be the target of a redirect; "" if it is unknown.
        """
        super().__init__(message)
        self.url = url
        self.status = status
        self.retry_after_s = retry_after_s


class BadRedirect(FetchError, code="bad-redirect"):
    """A redirect is invalid or not allowed, or there were too many redirects."""


class BadHttp(FetchError, code="bad-http"):
    """The response is not valid HTTP, or its content encoding is unknown or broken."""


class TooLarge(FetchError, code="too-large"):
    """The response's headers or body exceed the size limit."""


class FeedError(PublisherError, code="feed-error"):
    """The response body is not a usable feed or page."""


class EmptyBody(FeedError, code="empty-body"):
    """The response body is empty."""


class NotAFeed(FeedError, code="not-a-feed"):
    """The document is readable, but it is no feed and links to none."""


class ListOfFeeds(FeedError, code="list-of-feeds"):
    """The document is a list of feeds (OPML), which can be imported but not monitored."""


class BrokenFeed(FeedError, code="broken-feed"):
    """The document looks like a feed but cannot be parsed."""


class ParseKilled(FeedError, code="parse-killed"):
    """The parser process exceeded the CPU time or memory limit for one document and was killed."""


class OperationalError(CoronetError, code="operational-error"):
    """Coronet or its infrastructure failed; the caller can retry."""


class ParserBusy(OperationalError, code="parser-busy"):
    """Too many OPML files are being parsed at once."""


class StoreUnavailable(OperationalError, code="store-unavailable"):
    """Redis is unreachable or rejects the write."""


class StoreIdentityMismatch(StoreUnavailable, code="store-refused"):
    """The store lost data or belongs to another fleet. Programs reject it until the operator accepts it."""


class NoWorker(OperationalError, code="no-worker"):
    """No worker accepted the request in time."""


class AssignmentPending(OperationalError, code="not-settled"):
    """No worker polls the channel yet, because the channel is new or the set of workers has just changed."""


class LeaseLost(OperationalError, code="lease-lost"):
    """A write was rejected, because this process no longer has the lease (temporary right) that it needs."""


class StaleVersion(OperationalError, code="stale-version"):
    """The channel has a newer version than the one on which a delta (a set of changes) is based."""

    def __init__(self, message: str, *, current: int = 0) -> None:
        """Create the error; ``current`` is the channel's version in the store."""
        super().__init__(message)
        self.current = current


class MoveRefused(OperationalError, code="step-refused"):
    """A key group (a range of keys, CLASH) cannot be split, merged or moved as requested.

    Another move may be in progress.
    """


class BadStrategy(OperationalError, code="bad-strategy"):
    """A partial lookup's strategy has an invalid parameter, or a server received a message of another strategy."""


class CellsUnavailable(OperationalError, code="cells-lost"):
    """Cells of the search directory changed or disappeared too often during a registration or query."""


class KeyGroupMoving(StoreUnavailable, code="groups-moving"):
    """A lookup was redirected too often, because its key group (a range of keys, CLASH) keeps moving."""


class UploadRefused(OperationalError, code="upload-refused"):
    """The XMPP server rejects an HTTP upload (XEP-0363); the error's text says why."""


class PeerUnreachable(OperationalError, code="peer-silent"):
    """Another worker does not respond in time. The caller can get the content from elsewhere."""


class PeerProtocolError(OperationalError, code="peer-refused"):
    """Another worker sent an invalid message.

    The message is malformed, too large or unauthenticated, or its Bloom filters have another size than this worker's.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        """Create the error; ``reason`` is one word, the label of the metric that counts these errors."""
        super().__init__(message)
        self.reason = reason


def to_fault(error: CoronetError) -> Fault:
    """Convert an error to the form in which it is sent to another process."""
    status = error.status if isinstance(error, BadStatus) else 0
    return Fault(error.code, str(error), status, error.sentence if error.values else "", dict(error.values))


def from_fault(fault: Fault) -> CoronetError:
    """Convert an error from another process back to an exception; an unknown code becomes :class:`CoronetError`."""
    if fault.code == BadStatus.code:
        return BadStatus(fault.detail, status=fault.status)
    error_class = _CLASSES_BY_CODE.get(fault.code, CoronetError)
    return error_class(fault.sentence, **fault.values) if fault.values else error_class(fault.detail)
