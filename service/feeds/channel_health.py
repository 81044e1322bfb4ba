"""The health of channels (feeds and pages): diagnoses from poll results, notices to subscribers, and the back-off.

- The *symptom* of a poll is the class of its result, such as healthy or failing.
- *Evidence* is a series of polls with the same symptom. The store keeps it with the channel.
- A *diagnosis*, for example that a channel is dead, needs evidence from several nodes over some time. One node's
  network or one bad day is not enough.
- The *back-off* is the minimum interval between polls of a failing channel.

The back-off equals the time for which the channel has failed so far, up to ``LONGEST_BACKOFF_S``. The next poll thus
takes place before the failure has lasted twice as long, and detects a recovery. Failures that this node's own network
may have caused do not count (see ``network_outage_detector``).
"""

# The store's script ``channel_record_poll`` adds up the time f for which a channel has failed, because several nodes
# poll a channel. The channel may have worked between two failed polls, so that the time between them counts only in
# part: a failed poll t seconds after the previous one increases f by min(t, max(f, ``FIRST_BACKOFF_S``)).

from typing import Literal

import msgspec

from service.errors import BadStatus, ParseKilled
from service.model import NodeId, Notice, PollResult

DAY_S = 86_400.0
MIN_OBSERVERS = 2
"""Minimum number of nodes that must have observed the symptom before a channel counts as moved or dead. If fewer nodes
poll the channel, all of them must have observed it."""
PERMANENT_POLLS = 3
PERMANENT_AFTER_S = DAY_S
"""Minimum time that ``PERMANENT_POLLS`` successive polls must span before a redirect or a status 410 counts as
permanent."""
DEAD_AFTER_S = 30 * DAY_S
DEAD_POLLS = 30
"""Minimum number of successive polls with the symptom ``FAILING`` after which a channel is dead. These polls must also
span at least ``DEAD_AFTER_S``. The time span alone would not be sufficient, because a fleet that was stopped for a long
time has polled only before and after the stop."""
QUARANTINE_POLLS = 3

FIRST_BACKOFF_S = 900.0
"""Maximum back-off after the first two failed polls in succession."""
LONGEST_BACKOFF_S = DAY_S

HEALTHY = ""
GONE = "gone"
FAILING = "failing"
PARSER_KILLED = "deadly"
BUSY = "busy"
MOVED_PREFIX = "moved:"
"""The symptom of a successful poll that was redirected permanently: this prefix and the new URL."""

_SUCCESSFUL_OUTCOMES = frozenset({"new", "unchanged"})
_GONE_STATUS = 410
_BUSY_STATUSES = frozenset({429, 503})


class Evidence(msgspec.Struct, frozen=True, rename={"symptom": "charge"}):
    """A series of polls with the same symptom, which is the class of a poll's result.

    - ``polls`` is the number of these polls.
    - ``nodes`` are the nodes that made them.
    - ``first_s`` and ``last_s`` are the Unix times of the first and the last poll.

    Polls with the symptom ``BUSY`` (status 429 or 503: the publisher requests a pause) are not counted. They do not end
    the series.
    """

    symptom: str
    first_s: float
    last_s: float
    polls: int
    nodes: tuple[NodeId, ...]


class ChannelHealth(msgspec.Struct, frozen=True):
    """The health of a channel (a feed or page) after a poll.

    - ``symptom`` is the class of the poll's result, for example healthy or failing.
    - ``condition`` is the kind of the last notice that was sent to subscribers.
    - ``backoff_s`` is the minimum interval in seconds between polls of a failing channel.
    - ``evidence`` is the latest series of polls with the same symptom; None if there is none.
    """

    symptom: str
    condition: str
    backoff_s: float = 0.0
    evidence: Evidence | None = None


class PollReport(msgspec.Struct, frozen=True):
    """A report to the store about one poll: its result and symptom (the class of the result, :func:`symptom_of`).

    ``symptom`` is None while this node's own network may have caused the failure. If the publisher turns out to be the
    cause, the result is reported again, with its symptom and with ``is_repeat``.
    """

    result: PollResult
    symptom: str | None
    is_repeat: bool = False


def symptom_of(url: str, result: PollResult, permanent_url: str = "") -> str:
    """Return the symptom, the class of a poll's ``result``, of the channel ``url``.

    ``permanent_url`` is the canonical URL that the poll reached by permanent redirects alone, before any other
    redirect; "" if there were no such redirects.

    The symptom is ``HEALTHY``, ``GONE``, ``FAILING``, ``BUSY``, ``PARSER_KILLED``, or ``MOVED_PREFIX`` + the new URL.
    The new URL is ``permanent_url``, with the CSS selector of ``url`` if there is one.
    """
    if is_success(result):
        page, mark, selector = url.partition("#")
        return HEALTHY if permanent_url in {"", page} else f"{MOVED_PREFIX}{permanent_url}{mark}{selector}"
    if result.outcome == ParseKilled.code:
        return PARSER_KILLED
    if result.outcome == BadStatus.code and result.status in _BUSY_STATUSES:
        return BUSY
    return GONE if result.outcome == BadStatus.code and result.status == _GONE_STATUS else FAILING


def is_success(result: PollResult) -> bool:
    """Return whether a poll has fetched and parsed the channel's document, or found that it has not changed."""
    return result.outcome in _SUCCESSFUL_OUTCOMES


def is_healthy(symptom: str) -> bool:
    """Return whether ``symptom``, the class of a poll's result, is that of a successful poll, redirected or not."""
    return symptom == HEALTHY or symptom.startswith(MOVED_PREFIX)


def diagnose(health: ChannelHealth, pollers: int, reason: str) -> Notice | None:
    """Return the notice to send to a channel's subscribers, for example that it is dead; None if no notice is due.

    A notice is due if enough polls in succession have failed or were redirected permanently, or if a channel has
    recovered. A notice that was sent already is not due again.

    - ``pollers`` is the number of nodes that poll the channel.
    - ``reason`` describes the last poll's result in a sentence.
    """
    if health.condition and is_healthy(health.symptom):
        return Notice("back")
    evidence = health.evidence
    if evidence is None or not _is_sufficient(evidence, pollers):
        return None
    if evidence.symptom.startswith(MOVED_PREFIX):
        return Notice("moved", evidence.symptom.removeprefix(MOVED_PREFIX))
    kind: Literal["dead", "quarantined"] = "quarantined" if evidence.symptom == PARSER_KILLED else "dead"
    return None if kind == health.condition else Notice(kind, reason)


def _is_sufficient(evidence: Evidence, pollers: int) -> bool:
    if evidence.symptom == PARSER_KILLED:
        return evidence.polls >= QUARANTINE_POLLS
    if len(evidence.nodes) < min(MIN_OBSERVERS, pollers):
        return False
    is_failing = evidence.symptom == FAILING
    polls, over_s = (DEAD_POLLS, DEAD_AFTER_S) if is_failing else (PERMANENT_POLLS, PERMANENT_AFTER_S)
    return evidence.polls >= polls and evidence.last_s - evidence.first_s >= over_s
