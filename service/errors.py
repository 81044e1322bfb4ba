"""Every error Coronet raises on purpose, in one tree that says who was at fault.

::

    CoronetError
    ├── UserError                 what was asked for cannot be done; ask differently
    │   ├── BadUrl                not a URL we can watch (the text says why)
    │   ├── AddressRefused        the guard: not a public address, or a port we do not use
    │   ├── NotSubscribed         no such subscription (also: not yours)
    │   ├── LimitReached          one of the user's limits, or what a publisher may be asked
    │   ├── HostBlocked           admins want this host not to be asked for anything
    │   ├── BadKey                no identifier key, or no key group, of this store's layout
    │   ├── UnknownKeyspace       this store has fewer keyspaces
    │   ├── NoSuchThing           what a path or a command names is not there, or not any more
    │   ├── NotAllowed            who asks may not do this
    │   ├── WrongUse              a command line that no command of ours understands
    │   └── BadQuery              no AV-pairs, words or pattern that can be searched for (the text says why)
    ├── PublisherError            the publisher's side; the same request may work later
    │   ├── FetchError
    │   │   ├── HostNotFound      the name does not resolve
    │   │   ├── Unreachable       refused, reset, no route, timed out
    │   │   ├── TlsFailed         certificate or handshake (the text says what is wrong)
    │   │   ├── BadStatus         an HTTP status that carries no content; has ``status``, ``retry_after_s``
    │   │   ├── BadRedirect       loop, too many, no target, or https to http
    │   │   ├── BadHttp           not HTTP, bad encoding, contradictory headers
    │   │   └── TooLarge          headers or body over the cap
    │   └── FeedError
    │       ├── EmptyBody         nothing, or only white space and comments
    │       ├── NotAFeed          readable, but neither a feed nor leading to one
    │       ├── ListOfFeeds       a list of feeds (OPML), which is imported rather than watched
    │       ├── BrokenFeed        looks like a feed and cannot be read
    │       └── ParseKilled       the parser needed more time or memory than we give one body
    └── OperationalError          our side; retrying is right
        ├── ParserBusy            too many lists of feeds are being read at once
        ├── StoreUnavailable      Redis cannot be reached or refuses writes
        │   └── StoreRefused      Redis lost data or has another fleet's: unused until the operator accepts it
        ├── NoWorker              no worker answered in time
        ├── NotSettled            how a channel is polled has not been decided yet
        ├── LeaseLost             somebody else holds what we thought was ours
        ├── StaleVersion          a delta's base is not the channel's version; has ``current``
        ├── StepRefused           a key group cannot be split or merged just so, or not now; nothing changed
        ├── BadStrategy           a directory's share cannot be kept so, or was told what another strategy does
        ├── CellsLost             the cells of a matrix vanish faster than they are made
        ├── GroupsMoving          a subscription's key group was not found: groups kept moving
        ├── UploadRefused         the XMPP server takes no file of ours (the text says why)
        ├── PeerSilent            another worker does not answer, or not in time
        └── PeerRefused           what another worker sent is not taken; has ``reason``, nothing changed

Errors cross process borders as :class:`Fault`: ``code`` is the class attribute below, ``detail`` the text,
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


class CoronetError(Exception):
    """Root of the tree. ``str(error)`` says what happened, to what, and what to do."""

    code: ClassVar[str] = "error"

    def __init__(self, sentence: str = "", /, **values: str | int) -> None:
        """Keep the sentence and what is put into it, ``{name}`` by ``{name}``: it may be said in other languages.

        Without values the sentence is taken as it is.
        """
        written = {name: f"{value:,}" if isinstance(value, int) else value for name, value in values.items()}
        super().__init__(sentence.format(**written) if values else sentence)
        self.sentence = sentence
        self.values: Values = values


class UserError(CoronetError):
    """The request itself cannot be carried out."""

    code = "user-error"


class BadUrl(UserError):
    """The text is not a URL that can be watched."""

    code = "bad-url"


class AddressRefused(UserError):
    """The socket guard refused the address or port."""

    code = "address-refused"


class NotSubscribed(UserError):
    """No such subscription, or not this user's: one answer for both."""

    code = "not-subscribed"


class LimitReached(UserError):
    """One of the user's limits is used up, or how often a publisher may be asked."""

    code = "limit-reached"


class HostBlocked(UserError):
    """Admins want a host, or the domain that it is of, to be asked for nothing."""

    code = "host-blocked"


class BadKey(UserError):
    """Not an identifier key, or not a key group's label, of as many bits as this store's keys have."""

    code = "bad-key"


class UnknownKeyspace(UserError):
    """A keyspace's number is not one of this store's."""

    code = "unknown-keyspace"


class NoSuchThing(UserError):
    """What is named is not there: an account, a person; it may have been removed."""

    code = "no-such-thing"


class NotAllowed(UserError):
    """Who asks may not do this; the text says who may."""

    code = "not-allowed"


class WrongUse(UserError):
    """No such command, or not with these arguments; the text says which there are."""

    code = "wrong-use"


class BadQuery(UserError):
    """Not something that can be searched for, or watched; the text says why, and what can."""

    code = "bad-query"


class PublisherError(CoronetError):
    """The publisher's side failed."""

    code = "publisher-error"


class FetchError(PublisherError):
    """No usable HTTP answer."""

    code = "fetch-error"


class HostNotFound(FetchError):
    """The host's name does not resolve."""

    code = "host-not-found"


class Unreachable(FetchError):
    """Refused, reset, no route, or too slow."""

    code = "unreachable"


class TlsFailed(FetchError):
    """The certificate or the handshake is wrong."""

    code = "tls-failed"


class BadStatus(FetchError):
    """An HTTP status other than 200 and 304."""

    code = "bad-status"

    def __init__(self, message: str, *, status: int = 0, retry_after_s: float | None = None) -> None:
        """Keep the status and the publisher's ``Retry-After`` (seconds), if it gave one."""
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class BadRedirect(FetchError):
    """A redirect that cannot or must not be followed."""

    code = "bad-redirect"


class BadHttp(FetchError):
    """The answer is not valid HTTP, or its encoding is unknown or broken."""

    code = "bad-http"


class TooLarge(FetchError):
    """Headers or body exceed the cap."""

    code = "too-large"


class FeedError(PublisherError):
    """The body arrived and cannot be used."""

    code = "feed-error"


class EmptyBody(FeedError):
    """There is nothing in it."""

    code = "empty-body"


class NotAFeed(FeedError):
    """It is readable, but not a feed, and it names none."""

    code = "not-a-feed"


class ListOfFeeds(FeedError):
    """It is a list of feeds (OPML): not to be watched itself, but imported."""

    code = "list-of-feeds"


class BrokenFeed(FeedError):
    """It looks like a feed and cannot be read."""

    code = "broken-feed"


class ParseKilled(FeedError):
    """The parser used up the time or memory one body gets."""

    code = "parse-killed"


class OperationalError(CoronetError):
    """Our side failed; trying again is right."""

    code = "operational-error"


class ParserBusy(OperationalError):
    """Too many lists of feeds are being read at once."""

    code = "parser-busy"


class StoreUnavailable(OperationalError):
    """Redis cannot be reached, or refuses the write."""

    code = "store-unavailable"


class StoreRefused(StoreUnavailable):
    """The store lost data, or is another fleet's: it is not used until the operator accepts it."""

    code = "store-refused"


class NoWorker(OperationalError):
    """No worker took the request in time."""

    code = "no-worker"


class NotSettled(OperationalError):
    """How a channel is polled has not been decided yet: it is new, or nodes have just come or gone."""

    code = "not-settled"


class LeaseLost(OperationalError):
    """The lease or epoch we acted under is no longer ours."""

    code = "lease-lost"


class StaleVersion(OperationalError):
    """A delta was made against an older version than the channel's."""

    code = "stale-version"

    def __init__(self, message: str, *, current: int = 0) -> None:
        """Keep the channel's current version."""
        super().__init__(message)
        self.current = current


class StepRefused(OperationalError):
    """A key group cannot be split, merged or moved that way, or not while another move is under way."""

    code = "step-refused"


class BadStrategy(OperationalError):
    """A partial lookup's strategy has a number that makes no sense, or a server got another strategy's message."""

    code = "bad-strategy"


class CellsLost(OperationalError):
    """The cells that a name should go to, or be looked for in, were not there, again and again."""

    code = "cells-lost"


class GroupsMoving(OperationalError):
    """Every keyspace that was asked for a key sent us elsewhere."""

    code = "groups-moving"


class UploadRefused(OperationalError):
    """The XMPP server does not take a file of ours, or not now; the text says why."""

    code = "upload-refused"


class PeerSilent(OperationalError):
    """Another worker cannot be reached, or takes too long: what it was asked for is to be had elsewhere."""

    code = "peer-silent"


class PeerRefused(OperationalError):
    """Another worker sent what cannot be right, is too large, or is meant for another shape of filters."""

    code = "peer-refused"

    def __init__(self, message: str, *, reason: str = "") -> None:
        """Keep the reason, one word, by which such messages are counted."""
        super().__init__(message)
        self.reason = reason


def _by_code(root: type[CoronetError]) -> dict[str, type[CoronetError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found.update(_by_code(child))
    return found


def to_fault(error: CoronetError) -> Fault:
    """Return the error as a value."""
    status = error.status if isinstance(error, BadStatus) else 0
    return Fault(error.code, str(error), status, error.sentence if error.values else "", dict(error.values))


def from_fault(fault: Fault) -> CoronetError:
    """Return the error a fault stands for; an unknown code becomes the root class."""
    if fault.code == BadStatus.code:
        return BadStatus(fault.detail, status=fault.status)
    kind = _by_code(CoronetError).get(fault.code, CoronetError)
    return kind(fault.sentence, **fault.values) if fault.values else kind(fault.detail)
