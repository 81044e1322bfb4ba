"""The state of a channel (a feed or page) that a node keeps between polls, and how polls and new versions change it."""

from collections.abc import Sequence

import msgspec

from service.corona.messages import Candidate, VersionBase
from service.corona.update_rates import UpdateHistory
from service.feeds.sandbox.protocol import DetectionResult, Document
from service.location.content_cache import merge_latest
from service.model import Channel, Delta, Entry, PollingHints, Validators
from service.store.channels.channel_records import ChannelState, Snapshot

_MAX_DOCUMENTS = 8
_MAX_DOCUMENT_BYTES = 8 * 1024 * 1024
_DAY_S = 86_400


class PollState(msgspec.Struct, gc=False):
    """The state of a channel (a feed or page) that a node keeps between two polls.

    The next poll compares the document with the version ``channel.version``.

    - ``validators``: the ETag, the date and the body's hash for the next request. If a document has changes that are
      not in a version yet, its validators are not stored here, so that the next poll detects the changes again.
    - ``unversioned``: the documents with changes that are not in a version yet, oldest first.
    - ``polling_hints``: the polling hints in the last document that this node has read.
    - ``address_group``: the network of the address that responded to the last poll; "" if not known.
    - ``slow``: whether the last fetch took long.
    - ``costly``: whether the last parse took much processor time.
    - ``deadly_sha256``: the hash of a document that used up a parser's time or memory, so that the parser was killed;
      "" if there was none.
    - ``full_day``: the day of the last poll, as returned by :func:`channel_day`. The first poll on another day
      requests the whole document, even if it has not changed.
    - ``digest``: the hash of the stored content of the channel's version.
    """

    # The validators may be newer than those in the store if later documents contained no changes.

    channel: Channel
    validators: Validators
    subscribers: int
    unversioned: tuple[Document, ...] = ()
    polling_hints: PollingHints = PollingHints()
    address_group: str = ""
    slow: bool = False
    costly: bool = False
    deadly_sha256: str = ""
    full_day: int = 0
    digest: bytes = b""


class DetectedUpdate(msgspec.Struct, frozen=True):
    """Changes that a poll has detected: the changed documents, and the candidate for a new version.

    The candidate contains the changes. It is offered to the channel's owner, the node that creates versions. The
    update is kept until the owner announces a version.
    """

    # If that version is the candidate of another node, the documents are compared with it again.

    documents: tuple[Document, ...]
    candidate: Candidate


def build_poll_state(stored: ChannelState, subscribers: int, now_s: float, known: PollState | None = None) -> PollState:
    """Return the state for polls that compare the document with the ``stored`` version of a channel.

    - ``subscribers``: how many subscribers the channel has.
    - ``now_s``: the Unix time in seconds.
    - ``known``: the state of this node's earlier polls, or None. Facts that are not stored, such as whether the last
      fetch was slow, are taken from it.
    """
    channel = msgspec.structs.replace(stored.channel, title="", link="")  # not needed for tens of thousands of channels
    if known is None:
        full_day = channel_day(channel, now_s)
        known = PollState(channel, Validators(), 0, polling_hints=stored.polling_hints, full_day=full_day)
    return advance_to_version(known, channel, stored.validators, subscribers, stored.digest)


def advance_to_version(
    state: PollState, channel: Channel, validators: Validators, subscribers: int, digest: bytes
) -> PollState:
    """Return the state for polls that compare the document with another version of a channel.

    - ``channel``: the channel at that version.
    - ``validators``: the ETag, the date and the body's hash for the next request.
    - ``digest``: the hash of the stored content at that version.

    Facts that only this node knows, such as whether the last fetch was slow, are taken from ``state``.
    """
    return msgspec.structs.replace(
        state, channel=channel, validators=validators, subscribers=subscribers, digest=digest, unversioned=()
    )


def is_version_of(candidate: Candidate, base: VersionBase) -> bool:
    """Return whether the channel's owner made the version ``base`` from ``candidate``.

    If so, the version contains all changes in ``candidate``. Otherwise it contains changes that another node detected.
    """
    return (candidate.delta.detected_s, candidate.validators) == (base.detected_s, base.validators)


def channel_day(channel: Channel, now_s: float) -> int:
    """Return the number of the channel's day at ``now_s`` (Unix s), modulo 256.

    A channel's day is a period of 24 hours, which begins at a different time of day for each channel.
    """
    # Python shares integer objects below 257; larger ones would take 32 bytes per channel.
    offset_s = int(channel.id[:4], 16) / 65_536 * _DAY_S
    return int((now_s + offset_s) // _DAY_S) % 256


def documents_to_compare(state: PollState, arrived: Document | None) -> tuple[Document, ...]:
    """Return the documents that the next comparison must read, oldest first.

    They consist of the documents with changes that are not in a version yet, and the new document ``arrived``, if any.
    """
    # The former are read again, because a short feed may have dropped entries that still need a version.
    return state.unversioned if arrived is None else _limit((*_others(state, (arrived,)), arrived))


def accept_unchanged(state: PollState, documents: Sequence[Document], validators: Validators) -> None:
    """Record in ``state`` that ``documents`` contain no changes.

    The next request uses ``validators``, unless another poll has detected changes that are not in a version yet.
    """
    state.unversioned = _others(state, documents)
    if not state.unversioned:
        state.validators = validators


def keep_unversioned(state: PollState, documents: Sequence[Document]) -> None:
    """Add ``documents`` to ``state``, so that each poll compares them until their changes are in a version."""
    state.unversioned = _limit((*_others(state, documents), *documents))


def build_update(
    channel: Channel, documents: Sequence[Document], validators: Validators, findings: DetectionResult, now_s: float
) -> DetectedUpdate | None:
    """Return the update with the changes in ``findings``; None if there are no changes.

    - ``findings`` is the result of comparing ``documents`` with the version ``channel.version``.
    - ``validators`` are the ETag, the date and the body's hash of the response.
    - ``now_s`` is the Unix time in seconds.

    For a dormant channel (one that was not polled), an update is always returned, but it is not sent to subscribers.
    """
    if not findings.changes and not channel.dormant:
        return None
    candidate = Candidate(
        delta=Delta(channel.id, channel.version, 0, now_s, findings.changes, initial=channel.dormant),
        validators=validators,
        memory=findings.baseline,
        title=findings.title,
        link=findings.link,
        polling_hints=findings.polling_hints,
        language=findings.language,
        metadata=findings.metadata,
    )
    return DetectedUpdate(tuple(documents), candidate)


def build_snapshot(candidate: Candidate, before: Sequence[Entry], updates: UpdateHistory | None = None) -> Snapshot:
    """Return the state of a channel to store when ``candidate`` becomes a version.

    ``before`` contains the channel's latest entries before that version. ``updates`` is the history of the channel's
    updates.
    """
    return Snapshot(
        candidate.validators,
        candidate.memory,
        candidate.title,
        candidate.link,
        candidate.polling_hints,
        updates=updates,
        language=candidate.language,
        metadata=candidate.metadata,
        latest=merge_latest(candidate.delta.changes, before),
    )


def _others(state: PollState, documents: Sequence[Document]) -> tuple[Document, ...]:
    return tuple(document for document in state.unversioned if document not in documents)


def _limit(documents: tuple[Document, ...]) -> tuple[Document, ...]:
    documents = documents[-_MAX_DOCUMENTS:]
    while len(documents) > 1 and sum(len(document.body) for document in documents) > _MAX_DOCUMENT_BYTES:
        documents = documents[1:]
    return documents
