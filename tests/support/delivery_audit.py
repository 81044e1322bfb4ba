"""The delivery audit: compares published entries with received messages, and counts breaches of the guarantees.

Entries carry a tag, ``[FEED/NUMBER]``, in their titles, which every form of notification shows.

- I1 no loss: every entry published during a subscription reached the subscriber.
- I2 no duplicates: no entry has two message ids, except for corrections.
- I3 no message went to a non-subscriber, also right after an acknowledged unsubscribe.
- I4 entries are in order per feed and user.
- I5 acknowledged operations are durable.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from service.embedded.sample_publisher import PublishedEntry
from tests.support.chat import Received

_TAG = re.compile(r"\[(\d+)/(\d+)\]")

Tag = tuple[int, int]


def tagged(feed: int, number: int) -> str:
    """Return the title of entry ``number`` of a feed, with the tag by which the audit identifies the entry."""
    return f"News [{feed}/{number}]"


@dataclass(frozen=True)
class Subscribed:
    """One user's subscription to a feed, from its confirmation by the bot until the confirmed end (Unix s)."""

    jid: str
    feed: int
    since_s: float
    until_s: float = float("inf")


@dataclass
class Verdict:
    """The result of an audit.

    ``published`` counts published entries. ``owed`` counts the pairs of entry and user that have to be delivered,
    ``received`` those that were received, and ``resent`` the messages received again under the same id. ``broken`` maps
    each breached guarantee to one sentence per breach.
    """

    published: int = 0
    owed: int = 0
    received: int = 0
    resent: int = 0
    broken: dict[str, list[str]] = field(default_factory=dict)

    def breach(self, guarantee: str, sentence: str) -> None:
        """Add ``sentence`` to the breaches of ``guarantee``."""
        self.broken.setdefault(guarantee, []).append(sentence)

    def __str__(self) -> str:
        return (
            f"{self.published} published, {self.owed} owed, {self.received} received, {self.resent} resent under the"
            f" same id; broken: {self.broken or 'nothing'}"
        )


def audit(
    published: Sequence[PublishedEntry],
    subscribed: Sequence[Subscribed],
    received: Mapping[str, Sequence[Received]],
    held: Mapping[str, Collection[int]],
) -> Verdict:
    """Return the breaches of the guarantees.

    ``received`` has the notifications by JID, including resends. ``held`` has the feeds to which each JID is subscribed
    in the store at the end.
    """
    verdict = Verdict(published=len(published))
    times = {_tag(entry): entry.published_s for entry in published}
    for jid, messages in received.items():
        seen = _seen(jid, messages, verdict)
        own = [subscription for subscription in subscribed if subscription.jid == jid]
        _lost(jid, own, times, seen, verdict)
        _unwanted(jid, own, times, seen, verdict)
        _unordered(jid, seen, verdict)
        expected = {subscription.feed for subscription in own if subscription.until_s == float("inf")}
        if expected != set(held[jid]):
            verdict.breach("I5", f"{jid} should hold {sorted(expected)} and holds {sorted(held[jid])}")
    return verdict


def _tag(entry: PublishedEntry) -> Tag:
    found = _TAG.search(entry.title)
    return (int(found[1]), int(found[2])) if found else (entry.feed, -1)


def _seen(jid: str, messages: Sequence[Received], verdict: Verdict) -> dict[Tag, float]:
    """Return when each entry first arrived, in order of arrival."""
    first: dict[Tag, float] = {}
    ids: set[str] = set()
    for message in messages:
        if message.id in ids:
            verdict.resent += 1
            continue
        ids.add(message.id)
        for feed, number in _TAG.findall(message.body):
            tag = int(feed), int(number)
            if tag in first and not message.replaces:
                verdict.breach("I2", f"{jid} was shown {tag} again in message {message.id}")
            first.setdefault(tag, message.at_s)
    verdict.received += len(first)
    return first


def _lost(
    jid: str, own: Sequence[Subscribed], times: Mapping[Tag, float], seen: Mapping[Tag, float], verdict: Verdict
) -> None:
    for subscription in own:
        for tag, at_s in times.items():
            if tag[0] == subscription.feed and at_s > subscription.since_s and subscription.until_s == float("inf"):
                verdict.owed += 1
                if tag not in seen:
                    verdict.breach("I1", f"{jid} never got {tag}")


def _unwanted(
    jid: str, own: Sequence[Subscribed], times: Mapping[Tag, float], seen: Mapping[Tag, float], verdict: Verdict
) -> None:
    for tag, arrived_s in seen.items():
        mine = [subscription for subscription in own if subscription.feed == tag[0]]
        if not any(arrived_s <= subscription.until_s for subscription in mine):
            verdict.breach("I3", f"{jid} got {tag} without a subscription")
        if tag not in times:
            verdict.breach("I3", f"{jid} got {tag}, which was never published")


def _unordered(jid: str, seen: Mapping[Tag, float], verdict: Verdict) -> None:
    last: dict[int, int] = {}
    for feed, number in seen:
        if number < last.get(feed, -1):
            verdict.breach("I4", f"{jid} got {(feed, number)} after number {last[feed]}")
        last[feed] = max(number, last.get(feed, -1))
