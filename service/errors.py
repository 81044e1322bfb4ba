"""The errors that Coronet raises deliberately, as a hierarchy that shows who is responsible.

It has three branches:

- :class:`UserError`: the user must change the request.
- :class:`PublisherError`: the publisher is at fault, and the same request may work later.
- :class:`OperationalError`: Coronet or its infrastructure failed, and the caller can retry.

Errors are sent between processes as :class:`Fault`; :func:`to_fault` and :func:`from_fault` convert them. A package
that uses a driver (client library) translates the driver's errors into Coronet's errors. Errors that indicate a bug,
such as :class:`TypeError`, are not caught.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

Values = Mapping[str, str | int]
"""The values of the placeholders in an error's sentence, by name."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error in a form that can be sent to another process.

    - ``code``: the code that identifies the error's class.
    - ``detail``: the error's text.
    - ``status``: the HTTP status, if the error is a :class:`BadStatus`; otherwise 0.
    - ``sentence``, ``values``: the sentence with placeholders and the values from which ``detail`` was formatted. They
      are empty if ``detail`` was not formatted.
    """

    code: str
    detail: str
    status: int = 0
    sentence: str = ""
    values: dict[str, str | int] = {}


_CLASSES_BY_CODE: "dict[str, type[CoronetError]]" = {}


class CoronetError(Exception):
    """Base class of all Coronet errors. ``str(error)`` states what happened, what it concerns, and what to do."""

    code: ClassVar[str] = "error"

    def __init_subclass__(cls, *, code: str) -> None:
        """Register the class under ``code``. Codes are part of the API: they do not change when a class is renamed."""
        cls.code = code
        _CLASSES_BY_CODE[code] = cls

    def __init__(self, sentence: str = "", /, **values: str | int) -> None:
        """Format the English ``sentence`` with ``values``, and store both so that the bot can translate the sentence.

        Integers are formatted with thousands separators. Without values, the sentence is used unchanged.
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


class PortRefused(AddressRefused, code="port-refused"):
    """The port of an outgoing connection is not allowed, although the address is."""


class NotSubscribed(UserError, code="not-subscribed"):
    """The subscription does not exist, or it belongs to another user; the error's text does not reveal which."""


class LimitReached(UserError, code="limit-reached"):
    """A user has reached a limit, or requests to a publisher's site have reached their maximum rate."""


class RequestsPaused(LimitReached, code="requests-paused"):
    """The publisher or an admin has paused requests to a channel or a site for another ``paused_s`` seconds."""

    def __init__(self, message: str = "", *, paused_s: float = 0.0) -> None:
        """Create the error; ``paused_s`` is the remaining duration of the pause in seconds."""
        super().__init__(message)
        self.paused_s = paused_s


class HostBlocked(UserError, code="host-blocked"):
    """An admin has blocked requests to this host or its domain."""


class BadKey(UserError, code="bad-key"):
    """The key of a subscription, or the label of a key group, is invalid.

    For example, it is malformed, it does not fit the length of this store's keys, or there is no key group with this
    label. A key group consists of all keys that begin with the same bits (CLASH).
    """


class UnknownKeyspace(UserError, code="unknown-keyspace"):
    """No keyspace has this number. Keyspaces are the numbered parts of the store that hold the subscriptions."""


class NotFound(UserError, code="no-such-thing"):
    """The account, user or other object does not exist; it may have been removed."""


class PermissionDenied(UserError, code="not-allowed"):
    """The caller's role does not allow this operation; the error's text names a role that does."""


class UsageError(UserError, code="wrong-use"):
    """The command does not exist or does not take these arguments; the error's text lists the valid ones."""


class BadQuery(UserError, code="bad-query"):
    """The search query, saved search or filter rule is invalid; the error's text says why, and what is valid."""


class PublisherError(CoronetError, code="publisher-error"):
    """The publisher's server or document is at fault."""


class FetchError(PublisherError, code="fetch-error"):
    """The request did not get a usable HTTP response."""


class HostNotFound(FetchError, code="host-not-found"):
    """The host name cannot be resolved."""


class Unreachable(FetchError, code="unreachable"):
    """The connection was refused, was reset or timed out, or there is no route to the host."""


class TlsFailed(FetchError, code="tls-failed"):
    """The TLS handshake failed or the certificate is not trusted."""


class BadStatus(FetchError, code="bad-status"):
    """The HTTP status is neither 200 nor 304."""

    def __init__(self, message: str, *, status: int = 0, retry_after_s: float | None = None, url: str = "") -> None:
        """Create the error.

        - ``status``: the HTTP status.
        - ``retry_after_s``: the value of the ``Retry-After`` header in seconds; None if there is none.
        - ``url``: the URL of the response, which may be the target of a redirect; "" if it is unknown.
        """
        super().__init__(message)
        self.url = url
        self.status = status
        self.retry_after_s = retry_after_s


class BadRedirect(FetchError, code="bad-redirect"):
    """A redirect is invalid or not allowed, or there were too many redirects."""


class CredentialUnreadable(FetchError, code="credential-unreadable"):
    """The stored credential of a channel is missing, or cannot be decrypted, so that no request was sent."""


class BadHttp(FetchError, code="bad-http"):
    """The response is not valid HTTP, or its content encoding is unknown or broken."""


class TooLarge(FetchError, code="too-large"):
    """The response's headers or body exceed the size limit."""


class FeedError(PublisherError, code="feed-error"):
    """The response body is not a usable feed or page."""


class EmptyBody(FeedError, code="empty-body"):
    """The document contains no text that can be monitored.

    It is empty, consists only of a login form, or contains no text that matches the channel's selector.
    """


class NotAFeed(FeedError, code="not-a-feed"):
    """The document is readable, but is not a feed and does not link to one."""


class ListOfFeeds(FeedError, code="list-of-feeds"):
    """The document is a list of feeds (OPML), which can be imported but not monitored."""


class BrokenFeed(FeedError, code="broken-feed"):
    """The document looks like a feed but cannot be parsed."""


class ParseKilled(FeedError, code="parse-killed"):
    """The parser process was killed because it exceeded the limit on CPU time or memory for one document."""


class OperationalError(CoronetError, code="operational-error"):
    """Coronet or its infrastructure failed; the caller can retry."""


class ParserBusy(OperationalError, code="parser-busy"):
    """Too many OPML files are waiting to be parsed, or a file has waited too long."""


class StoreUnavailable(OperationalError, code="store-unavailable"):
    """Redis is unreachable or rejects the write."""


class StoreIdentityMismatch(StoreUnavailable, code="store-refused"):
    """The store has lost data or belongs to another fleet; programs wait for the operator to accept its data."""


class NoWorker(OperationalError, code="no-worker"):
    """No worker accepted the request in time."""


class AssignmentPending(OperationalError, code="not-settled"):
    """No worker polls the channel yet, because the channel is new or the set of workers has just changed."""


class LeaseLost(OperationalError, code="lease-lost"):
    """A write was rejected because this process no longer holds the required lease (a temporary right)."""


class StaleVersion(OperationalError, code="stale-version"):
    """A delta (a set of changes) was rejected, because it is based on an outdated version of its channel."""

    def __init__(self, message: str, *, current: int = 0) -> None:
        """Create the error; ``current`` is the channel's version in the store."""
        super().__init__(message)
        self.current = current


class MoveRefused(OperationalError, code="step-refused"):
    """A key group cannot be split, merged or moved as requested, for example because another move is in progress.

    A key group consists of all subscriptions with keys that begin with the same bits (CLASH).
    """


class BadStrategy(OperationalError, code="bad-strategy"):
    """A strategy of partial lookup has an invalid parameter, or a server received a message of another strategy.

    Partial lookup distributes the entries of a directory among several servers. A strategy is a rule that determines
    which entries each server stores.
    """


class CellsUnavailable(OperationalError, code="cells-lost"):
    """A registration or query failed, because parts of the search directory changed or disappeared too often.

    These parts are called cells. Each cell lists channels or entries that have the same attribute value, for example
    the same tag.
    """


class KeyGroupMoving(StoreUnavailable, code="groups-moving"):
    """A lookup of subscriptions was redirected too often, because they kept moving between parts of the store.

    Subscriptions move in key groups, which consist of all subscriptions with keys that begin with the same bits
    (CLASH).
    """


class UploadRefused(OperationalError, code="upload-refused"):
    """The XMPP server rejected an HTTP upload (XEP-0363); the error's text says why."""


class PeerUnreachable(OperationalError, code="peer-silent"):
    """Another worker has not responded in time. The caller should get the content from elsewhere."""


class PeerProtocolError(OperationalError, code="peer-refused"):
    """Another worker has violated the protocol between workers, or has refused a request.

    For example, its message is malformed, too large or unauthenticated, or the two workers use Bloom filters of
    different sizes.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        """Create the error; ``reason`` is a single word, used as a label in the metric that counts these errors."""
        super().__init__(message)
        self.reason = reason


def to_fault(error: CoronetError) -> Fault:
    """Convert an error to a form that can be sent to another process."""
    status = error.status if isinstance(error, BadStatus) else 0
    return Fault(error.code, str(error), status, error.sentence if error.values else "", dict(error.values))


def from_fault(fault: Fault) -> CoronetError:
    """Convert an error from another process back to an exception; an unknown code becomes :class:`CoronetError`."""
    if fault.code == BadStatus.code:
        return BadStatus(fault.detail, status=fault.status)
    error_class = _CLASSES_BY_CODE.get(fault.code, CoronetError)
    return error_class(fault.sentence, **fault.values) if fault.values else error_class(fault.detail)
