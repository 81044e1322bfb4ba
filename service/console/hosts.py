"""Publishers' sites: what of them is watched, how they answer, and how often they may be asked."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from service.console.roster import Roster
from service.model import ChannelId, PollResult
from service.net.sites import site_of
from service.store import Store
from service.store.channels import POLLS_KEPT

PAGE: Final = 50
_POLLS_OF: Final = 250
_BUSY: Final = 429


class Site(msgspec.Struct, frozen=True):
    """A registrable domain: how many of its channels are watched, by how many subscriptions, and how many fail.

    ``requests_per_s`` is what an admin set, null for what the settings say; ``blocked`` are its hosts, or the site as a
    whole, that nobody is to ask.
    """

    site: str
    channels: int
    subscriptions: int
    failing: int
    requests_per_s: float | None
    blocked: tuple[str, ...]


class Answers(msgspec.Struct, frozen=True):
    """How a site answered the last polls that are kept of so many (``channels``) of its channels.

    ``not_modified`` counts the 304s, ``busy`` the 429s.
    """

    channels: int
    polls: int
    outcomes: dict[str, int]
    not_modified: int
    busy: int
    mean_s: float


async def sites(store: Store, roster: Roster, part: str) -> list[Site]:
    """Return all sites whose name holds ``part``, those of most channels first."""
    rates, listed, _ = await asyncio.gather(store.hosts.rates(), store.blocks.all(), roster.look())
    blocked: dict[str, list[str]] = {}
    for name in sorted(listed):
        blocked.setdefault(site_of(name), []).append(name)
    wanted = part.casefold().strip()
    channels, subscriptions, failing = Counter[str](), Counter[str](), Counter[str]()
    for row in roster.rows.values():
        channels[row.site] += 1
        subscriptions[row.site] += roster.subscribers(row.id)
        failing[row.site] += row.failing_since_s > 0
    names = sorted(
        (name for name in {*channels, *rates, *blocked} if wanted in name), key=lambda name: (-channels[name], name)
    )
    return [
        Site(name, channels[name], subscriptions[name], failing[name], rates.get(name), tuple(blocked.get(name, ())))
        for name in names
    ]


async def answers(store: Store, roster: Roster, site: str) -> Answers:
    """Return how a site answered lately."""
    await roster.look()
    ids: list[ChannelId] = [row.id for row in roster.rows.values() if row.site == site][:_POLLS_OF]
    found = [poll for polls in await store.channels.polls_of(ids, POLLS_KEPT) for poll in polls]
    return Answers(
        channels=len(ids),
        polls=len(found),
        outcomes=dict(Counter(poll.outcome for poll in found).most_common()),
        not_modified=_count(found, 304),
        busy=_count(found, _BUSY),
        mean_s=sum(poll.took_s for poll in found) / len(found) if found else 0.0,
    )


def _count(polls: Sequence[PollResult], status: int) -> int:
    return sum(poll.status == status for poll in polls)
