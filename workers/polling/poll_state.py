"""What a node remembers of a channel that it polls, and what follows from what its documents say."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from service.corona.messages import Candidate, VersionBase
from service.corona.update_rates import UpdateHistory
from service.feeds.sandbox.protocol import DetectionResult, Document
from service.location.content_cache import newest
from service.model import Channel, Delta, Entry, PollingHints, Validators
from service.store.channels.channels import ChannelState, Snapshot

_DOCUMENTS_KEPT = 8
_BYTES_KEPT = 8 * 1024 * 1024
_DAY_S = 86_400


class Publisher(NamedTuple):
    """Whose document is read: a site, and the network that answers for it ("": not known yet)."""

    site: str
    network: str
    is_public: bool


class PollState(msgspec.Struct, gc=False):
    """The base that the next poll compares with, and what makes that poll conditional.

    Validators may run ahead of the store's while the content says nothing new; they never run ahead of a
    version that is not confirmed, so what is found but not versioned is found again. ``unversioned`` are the
    documents, oldest first, in which something was found that has no version yet. ``wishes`` are those of
    the last document read here. ``slow``: its last fetch took long; ``costly``: its last parse did.
    ``deadly_sha256`` is that of a body that killed its parser. ``full_day`` is the channel's day (:func:`day_of`) of
    the last unconditional poll. ``digest`` names the content of the channel's version. ``publisher`` is who was polled
    last.
    """

    channel: Channel
    validators: Validators
    subscribers: int
    unversioned: tuple[Document, ...] = ()
    wishes: PollingHints = PollingHints()
    address_group: str = ""
    slow: bool = False
    costly: bool = False
    deadly_sha256: str = ""
    full_day: int = 0
    digest: bytes = b""
    publisher: Publisher | None = None


class DetectedUpdate(msgspec.Struct, frozen=True):
    """Documents that say something new, and what the channel's owner shall version for them.

    They are kept until a version is confirmed: if another node's find was versioned first, they are
    compared again with that version.
    """

    documents: tuple[Document, ...]
    candidate: Candidate


def watch(state: ChannelState, subscribers: int, now_s: float) -> PollState:
    """Return a channel's state in the store as the base of its next poll."""
    channel = msgspec.structs.replace(state.channel, title="", link="")  # tens of thousands of names for nothing
    full_day = day_of(channel, now_s)
    return PollState(
        channel, state.validators, subscribers, wishes=state.wishes, full_day=full_day, digest=state.digest
    )


def renewed(held: PollState, loaded: PollState) -> PollState:
    """Return the watch as loaded just now, with what only this node knows."""
    return msgspec.structs.replace(
        held,
        channel=loaded.channel,
        validators=loaded.validators,
        subscribers=loaded.subscribers,
        digest=loaded.digest,
        unversioned=(),
        publisher=None,
    )


def advanced(held: PollState, version: int, base: VersionBase) -> PollState:
    """Return the watch at a version that we were told of, with what only this node knows."""
    channel = msgspec.structs.replace(held.channel, version=version)
    return msgspec.structs.replace(
        held,
        channel=channel,
        validators=base.validators,
        subscribers=base.subscribers,
        digest=base.digest,
        unversioned=(),
    )


def is_of(candidate: Candidate, base: VersionBase) -> bool:
    """Say whether a version was made from this very candidate: then nothing of it is left to tell."""
    return (candidate.delta.detected_s, candidate.validators) == (base.detected_s, base.validators)


def day_of(channel: Channel, now_s: float) -> int:
    """Return the number of the channel's day, of 256 in turn; days of different channels begin at different times.

    Python shares numbers that small, and has a new one of 32 bytes for each channel otherwise.
    """
    offset_s = int(channel.id[:4], 16) / 65_536 * _DAY_S
    return int((now_s + offset_s) // _DAY_S) % 256


def condition(held: PollState, now_s: float) -> Validators:
    """Return what to make a poll conditional with: once a day only our own hash, for servers whose validators err."""
    if day_of(held.channel, now_s) == held.full_day:
        return held.validators
    return Validators(body_sha256=held.validators.body_sha256)


def documents_of(held: PollState, arrived: Document | None) -> tuple[Document, ...]:
    """Return the documents to compare, oldest first: a short feed may have dropped what is still to be versioned."""
    return held.unversioned if arrived is None else _bounded((*_besides(held, (arrived,)), arrived))


def moved_on(held: PollState, documents: Sequence[Document], validators: Validators) -> None:
    """Go on from documents that say nothing new, unless another poll has found something meanwhile."""
    held.unversioned = _besides(held, documents)
    if not held.unversioned:
        held.validators = validators


def kept(held: PollState, documents: Sequence[Document]) -> None:
    """Compare documents at every poll until what they say is versioned."""
    held.unversioned = _bounded((*_besides(held, documents), *documents))


def found(
    channel: Channel, documents: Sequence[Document], validators: Validators, findings: DetectionResult, now_s: float
) -> DetectedUpdate | None:
    """Return what the documents say besides the version of ``channel``, with which they were compared; or None.

    What a dormant channel lists is always found, to be taken in silently.
    """
    if not findings.changes and not channel.dormant:
        return None
    candidate = Candidate(
        delta=Delta(channel.id, channel.version, 0, now_s, findings.changes, initial=channel.dormant),
        validators=validators,
        memory=findings.baseline,
        title=findings.title,
        link=findings.link,
        wishes=findings.polling_hints,
        language=findings.language,
        imprint=findings.metadata,
    )
    return DetectedUpdate(tuple(documents), candidate)


def snapshot(candidate: Candidate, before: Sequence[Entry], updates: UpdateHistory | None = None) -> Snapshot:
    """Return what a channel's state becomes once a candidate is versioned; ``before`` are its latest entries so far."""
    return Snapshot(
        candidate.validators,
        candidate.memory,
        candidate.title,
        candidate.link,
        candidate.wishes,
        updates=updates,
        language=candidate.language,
        imprint=candidate.imprint,
        latest=newest(candidate.delta.changes, before),
    )


def _besides(held: PollState, documents: Sequence[Document]) -> tuple[Document, ...]:
    return tuple(document for document in held.unversioned if document not in documents)


def _bounded(documents: tuple[Document, ...]) -> tuple[Document, ...]:
    documents = documents[-_DOCUMENTS_KEPT:]
    while len(documents) > 1 and sum(len(document.body) for document in documents) > _BYTES_KEPT:
        documents = documents[1:]
    return documents
