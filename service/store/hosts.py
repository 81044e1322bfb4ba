"""What the whole fleet may ask of publishers: token buckets and pauses, on Redis's clock.

Whatever its parts, a bucket of ``most`` tokens and a rate grants at most ``most + rate · t`` requests in
any t seconds. Taking is all or nothing within a slot; across slots a refusal may cost a token, never give one.
"""

from collections.abc import Mapping
from typing import NamedTuple

from service.model import ChannelId
from service.store import keys
from service.store.link import BatchedPart, Command, script

SECONDS_PER_HOUR = 3600.0
_POLLS_IN_A_ROW = 3


class Bound(NamedTuple):
    """How often somebody named may be asked: requests per second on average, and how many in a row."""

    name: str
    requests_per_s: float
    burst: int


class Waits(NamedTuple):
    """Seconds until a channel's publisher may be asked, for each reason it may not be now; all 0.0 when it may.

    A pause that is left hides how full the channel's own budget is.
    """

    paused_s: float
    poll_s: float
    network_s: float


class Hosts(BatchedPart):
    """Budgets of sites and networks, by name, and of single channels, whether or not the store has these."""

    async def take(self, site: Bound, egress: Bound | None = None) -> float:
        """Take one request's token; return 0.0 if granted, else the seconds until one is there.

        ``egress`` is what those behind one address of ours may ask of this site. An admin's rate for the
        site overrides both rates.
        """
        buckets = {keys.host(site.name): site}
        if egress is not None:
            buckets[keys.host_egress(site.name, egress.name)] = egress
        (wait_ms,) = await self._link.many([_take(site.name, buckets)])
        return float(wait_ms) / 1000

    async def take_poll(self, cid: ChannelId, polls_per_hour: float, network: Bound | None = None) -> Waits:
        """Take one of a channel's polls, unless it is paused, and a token of the network that answers for it."""
        budget = keys.pause(cid), keys.poll_budget(cid)
        commands = [script("poll_take", budget, polls_per_hour / SECONDS_PER_HOUR, _POLLS_IN_A_ROW)]
        commands += [_network(network)] if network else []
        (paused_ms, poll_ms), *network_ms = await self._link.many(commands)
        return Waits(paused_ms / 1000, poll_ms / 1000, sum(network_ms) / 1000)

    async def take_network(self, network: Bound) -> float:
        """Take one token of a network; return 0.0 if granted, else the seconds until one is there."""
        wait_ms: int = await self._link.call(*_network(network))
        return wait_ms / 1000

    async def charge(self, network: Bound) -> None:
        """Charge a network for a request that it answered before we knew it would; a debt is at most a burst."""
        await self._link.call(*_network(network, least=-network.burst))

    async def rate(self, site: str) -> float | None:
        """Return what an admin set as a site's requests per second; None if nobody did."""
        found: bytes | None = await self._link.call("GET", keys.host_rate(site))
        return None if found is None else float(found)

    async def rates(self) -> dict[str, float]:
        """Return all that admins set, by site, for those who plan polls; what is granted is decided site by site."""
        found: dict[bytes, bytes] = await self._link.call("HGETALL", keys.HOST_RATES)
        return {site.decode(): float(rate) for site, rate in found.items()}

    async def set_rate(self, site: str, requests_per_s: float) -> None:
        """Have every worker ask a site this often from now on, whatever the settings say."""
        await self._link.many(
            [("SET", keys.host_rate(site), requests_per_s), ("HSET", keys.HOST_RATES, site, requests_per_s)]
        )

    async def forget_rate(self, site: str) -> None:
        """Have the settings decide again how often a site is asked."""
        await self._link.many([("DEL", keys.host_rate(site)), ("HDEL", keys.HOST_RATES, site)])

    async def pause(self, cid: ChannelId, for_s: float) -> None:
        """Have nobody ask a channel's publisher for it for so long; the latest wish counts, but admins' before all."""
        await self._link.script("pause", (keys.pause(cid), keys.channel(cid)), max(1, int(for_s * 1000)))

    async def paused_s(self, cid: ChannelId) -> float:
        """Return how much of a channel's pause is left; 0.0 if there is none."""
        (left_ms,) = await self._link.many([("PTTL", keys.pause(cid))])
        return float(max(0, left_ms)) / 1000


def _network(network: Bound, *, least: int = 0) -> Command:
    return _take(network.name, {keys.host(network.name): network}, least=least)


def _take(name: str, buckets: Mapping[str, Bound], *, least: int = 0) -> Command:
    """Return what takes a token of each bucket, all of them in the slot of ``name``, if ``least`` tokens stay."""
    shapes = (value for bound in buckets.values() for value in (bound.requests_per_s, bound.burst))
    return script("host_take", (keys.host_rate(name), *buckets), least, *shapes)
