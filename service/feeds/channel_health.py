"""The health of channels (feeds and pages): diagnoses from poll results, notices to subscribers, and the back-off.

- The *symptom* of a poll is the class of its result, such as healthy or failing.
- *Evidence* is a series of polls with the same symptom. The store keeps it with the channel.
- A *diagnosis*, for example that a channel is dead, needs evidence from several nodes over some time. A problem in one
  node's network, or a publisher's problem on a single day, is not enough.
- The *back-off* is the minimum interval between polls of a failing channel. It equals the time for which the channel
  has been failing, up to ``LONGEST_BACKOFF_S``.

Failures that may be due to this node's own network do not count (see ``network_outage_detector``).
"""

# The store's script ``channel_record_poll`` adds up the time f for which a channel has failed, because several nodes
# poll a channel. The channel may have worked between two failed polls, so that the time between them counts only in
# part: a failed poll t seconds after the previous one increases f by min(t, max(f, ``FIRST_BACKOFF_S``)).

from collections.abc import Mapping
from typing import Literal

import msgspec

from service.errors import BadStatus, ParseKilled
from service.feeds.canonical_urls import reader_of
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
REFUSED_POLLS = 2

FIRST_BACKOFF_S = 900.0
"""Maximum back-off after the first two failed polls in succession."""
LONGEST_BACKOFF_S = DAY_S

HEALTHY = ""
GONE = "gone"
FAILING = "failing"
PARSER_KILLED = "deadly"
BUSY = "busy"
REFUSED = "refused"
"""The symptom of a poll of a protected channel whose credential the publisher has refused."""
MOVED_PREFIX = "moved:"
"""The symptom of a successful poll that was redirected permanently: this prefix and the new URL."""

_SUCCESSFUL_OUTCOMES = frozenset({"new", "unchanged"})
_GONE_STATUS = 410
_BUSY_STATUSES = frozenset({429, 503})
_REFUSED_STATUSES = frozenset({401, 403})
_KIND_OF_SYMPTOM: Mapping[str, Literal["dead", "quarantined", "refused"]] = {
    PARSER_KILLED: "quarantined",
    REFUSED: "refused",
}


class Evidence(msgspec.Struct, frozen=True, rename={"symptom": "charge"}):
    """A series of consecutive polls of a channel that all had the same symptom.

    A symptom is the kind of a poll's result, such as failing. Polls with the symptom ``BUSY`` (status 429 or 503) are
    not counted, and do not end the series.

    - ``symptom``: the symptom of these polls.
    - ``first_s``, ``last_s``: the Unix times of the first and the last poll in seconds.
    - ``polls``: the number of polls.
    - ``nodes``: the nodes that made the polls.
    """

    symptom: str
    first_s: float
    last_s: float
    polls: int
    nodes: tuple[NodeId, ...]


class ChannelHealth(msgspec.Struct, frozen=True):
    """The health of a channel (a feed or page) after a poll.

    - ``symptom``: the kind of the poll's result, for example healthy or failing.
    - ``condition``: the problem about which subscribers have been told: "dead", "quarantined" or "refused"; "" if there
      is none.
    - ``backoff_s``: the minimum interval in seconds between polls of a failing channel.
    - ``evidence``: the latest series of polls with the same symptom; None if there is none.
    """

    symptom: str
    condition: str
    backoff_s: float = 0.0
    evidence: Evidence | None = None


class PollReport(msgspec.Struct, frozen=True):
    """A report to the store about one poll.

    - ``result``: the result of the poll.
    - ``symptom``: the kind of the result (:func:`symptom_of`). It is None while it is unknown whether the publisher
      or this node's own network caused a failure.
    - ``is_repeat``: true for the second report about the same poll. A second report follows a report with the symptom
      None, when the publisher turns out to have caused the failure.
    """

    result: PollResult
    symptom: str | None
    is_repeat: bool = False


def symptom_of(url: str, result: PollResult, permanent_url: str = "") -> str:
    """Return the symptom of a poll of the channel ``url``. The symptom is the kind of the poll's result.

    It is ``HEALTHY``, ``GONE``, ``FAILING``, ``BUSY``, ``REFUSED`` or ``PARSER_KILLED``. If a successful poll was
    permanently redirected to a new URL, the symptom is the text ``MOVED_PREFIX`` followed by this URL.

    ``permanent_url`` is the canonical URL that the poll reached by permanent redirects; "" if there were none.
    Redirects after the first temporary one do not count. The new URL is ``permanent_url``, with the selector of
    ``url`` if there is one.
    """
    if is_success(result):
        page, mark, selector = url.partition("#")
        return HEALTHY if permanent_url in {"", page} else f"{MOVED_PREFIX}{permanent_url}{mark}{selector}"
    if result.outcome == ParseKilled.code:
        return PARSER_KILLED
    if result.outcome == BadStatus.code and result.status in _BUSY_STATUSES:
        return BUSY
    if result.outcome == BadStatus.code and result.status in _REFUSED_STATUSES and reader_of(url):
        return REFUSED
    return GONE if result.outcome == BadStatus.code and result.status == _GONE_STATUS else FAILING


def is_success(result: PollResult) -> bool:
    """Return whether a poll has fetched and parsed the channel's document, or has found it unchanged."""
    return result.outcome in _SUCCESSFUL_OUTCOMES


def is_healthy(symptom: str) -> bool:
    """Return whether ``symptom`` means that the poll was successful, with or without a permanent redirect."""
    return symptom == HEALTHY or symptom.startswith(MOVED_PREFIX)


def diagnose(health: ChannelHealth, pollers: int, reason: str) -> Notice | None:
    """Return the notice to send to a channel's subscribers, for example that it is dead; None if none is due.

    A notice is due if enough consecutive polls have failed or were redirected permanently, or if a channel has
    recovered. Subscribers are not told again that a channel is dead or quarantined (``health.condition``).

    - ``pollers``: the number of nodes that poll the channel.
    - ``reason``: a sentence that describes the result of the latest poll.
    """
    if health.condition and is_healthy(health.symptom):
        return Notice("back")
    evidence = health.evidence
    if evidence is None or not _is_sufficient(evidence, pollers):
        return None
    if evidence.symptom.startswith(MOVED_PREFIX):
        return Notice("moved", evidence.symptom.removeprefix(MOVED_PREFIX))
    kind = _KIND_OF_SYMPTOM.get(evidence.symptom, "dead")
    return None if kind == health.condition else Notice(kind, reason)


def _is_sufficient(evidence: Evidence, pollers: int) -> bool:
    if evidence.symptom == PARSER_KILLED:
        return evidence.polls >= QUARANTINE_POLLS
    if evidence.symptom == REFUSED:
        return evidence.polls >= REFUSED_POLLS
    if len(evidence.nodes) < min(MIN_OBSERVERS, pollers):
        return False
    is_failing = evidence.symptom == FAILING
    polls, over_s = (DEAD_POLLS, DEAD_AFTER_S) if is_failing else (PERMANENT_POLLS, PERMANENT_AFTER_S)
    return evidence.polls >= polls and evidence.last_s - evidence.first_s >= over_s
