"""What a node remembers of a channel that it polls, and how a fetched document compares with it."""

import msgspec

from service.corona.messages import Candidate
from service.feeds.identity import IdentityState, decide
from service.model import Change, Channel, Delta, Entry, ParsedFeed, Validators
from service.net.fetch import Fetched
from service.store.channels import ChannelState

_DOCUMENTS_KEPT = 8


class Watch(msgspec.Struct):
    """The base that the next poll compares with, and what makes that poll conditional.

    Validators and identities may run ahead of the store's while the content says nothing new; they
    never run ahead of a version that is not confirmed, so what is found but not versioned is found again.
    ``unversioned`` are the documents, oldest first, in which something was found that has no version yet.
    ``slow``: its last poll took long. ``deadly_sha256`` is that of a body that killed its parser.
    """

    channel: Channel
    validators: Validators
    identity: IdentityState | None
    subscribers: int
    unversioned: tuple[ParsedFeed, ...] = ()
    slow: bool = False
    deadly_sha256: str = ""


class Found(msgspec.Struct, frozen=True):
    """Documents that say something new, and what the channel's owner shall version for them.

    They are kept until a version is confirmed: if another node's find was versioned first, they are
    compared again with that version. The last one was ``fetched``.
    """

    fetched: Fetched
    feeds: tuple[ParsedFeed, ...]
    candidate: Candidate


def watch(state: ChannelState, subscribers: int) -> Watch:
    """Return a channel's state in the store as the base of its next poll.

    Identities that another version of Coronet wrote and this one cannot read are forgotten: the next
    poll is unconditional and, like a first one, tells nothing.
    """
    try:
        identity = msgspec.msgpack.decode(state.identity, type=IdentityState) if state.identity else None
    except msgspec.DecodeError:
        return Watch(state.channel, Validators(), None, subscribers)
    return Watch(state.channel, state.validators, identity, subscribers)


def compare(watch: Watch, fetched: Fetched, feed: ParsedFeed | None, now_s: float) -> Found | None:
    """Return what is new in a document; None if nothing is, and then ``watch`` has moved on to it.

    ``feed`` is None when the publisher said that nothing changed. What a dormant channel lists is always
    found, to be taken in silently.
    """
    feeds = watch.unversioned
    if feed is not None and feed not in feeds:
        feeds = (*feeds, feed)[-_DOCUMENTS_KEPT:]
    # One after the other: a short feed may have dropped what is still to be versioned.
    identity, news = watch.identity, list[Entry]()
    for document in feeds:
        decision = decide(identity, document, url=fetched.url, now_s=now_s)
        identity = decision.state
        news += decision.new
    channel = watch.channel
    if not news and not channel.dormant:
        watch.validators, watch.identity, watch.unversioned = fetched.validators, identity, ()
        return None
    watch.unversioned = feeds
    changes = tuple(Change("addition", entry) for entry in news)
    candidate = Candidate(
        delta=Delta(channel.id, channel.version, 0, now_s, changes, initial=channel.dormant),
        validators=fetched.validators,
        identity=msgspec.msgpack.encode(identity) if identity else b"",
        title=(feeds and feeds[-1].title) or channel.title,
        link=(feeds and feeds[-1].link) or channel.link,
    )
    return Found(fetched, feeds, candidate)


def compare_again(watch: Watch, found: Found, now_s: float) -> Found | None:
    """Return what a find says besides the version that ``watch`` was loaded with."""
    watch.unversioned = found.feeds
    return compare(watch, found.fetched, None, now_s)
