"""Limits on requests to publishers, for the whole fleet: token buckets and pauses (guarantee I9).

A bucket of ``burst`` tokens with a rate of r per second grants at most ``burst + r · t`` requests in any t seconds. If
a request needs tokens from several buckets in one slot, it takes all of them or none. If the buckets are in different
slots, a refused request may use up a token, but no request is granted without all its tokens.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from service.errors import RequestsPaused
from service.model import ChannelId
from service.store.client import keys
from service.store.client.node_connections import Command
from service.store.client.redis_client import RedisRepository, script_command

SECONDS_PER_HOUR = 3600.0
SHORTEST_SITE_PAUSE_S = 30.0
"""The shortest pause of a site, and the first pause of a site that states no duration."""
LONGEST_SITE_PAUSE_S = 86_400.0
_POLLS_IN_A_ROW = 3
_PAUSE_KEPT_MS = 3_600_000
"""For how long a site's pause is kept after its end: requests then begin slowly, and the next pause may be longer."""


class RateLimit(NamedTuple):
    """Limit on requests to a site or network: its name, the average rate, and ``burst``, the bucket's size."""

    name: str
    requests_per_s: float
    burst: int


class PollDelays(NamedTuple):
    """Seconds until a channel may be polled, by cause. If all are 0.0, it may be polled now.

    ``paused_s`` is the remaining time of a pause of the channel or of its site, ``poll_s`` the wait for the channel's
    own budget, and ``network_s`` the wait for the budget of the channel's network.
    """

    paused_s: float
    poll_s: float
    network_s: float


class RequestBudgets(RedisRepository):
    """Token buckets of sites, networks and channels, which limit requests to publishers.

    The bucket of a channel may exist before the channel does.
    """

    async def take_site(self, site: RateLimit, egress: RateLimit | None = None) -> float:
        """Take a token for one request to a site.

        Return 0.0 if the request is granted, else the seconds until a token is available. ``site`` limits the requests
        of the whole fleet, and ``egress`` those of all workers behind one public address. If an admin has set a rate
        for the site, it replaces the rates of both limits. In the minutes after a pause of the site, the rates are
        lower and there are no bursts.

        Raises :class:`RequestsPaused` while the site is paused.
        """
        buckets = {keys.site_budget(site.name): site}
        if egress is not None:
            buckets[keys.egress_budget(site.name, egress.name)] = egress
        ((wait_ms, paused_ms),) = await self._redis.call_many([_take_of_site(site.name, buckets)])
        if paused_ms > 0:
            paused_s = paused_ms / 1000
            raise RequestsPaused(f"{site.name} asked for no requests for another {paused_s:.0f} s.", paused_s=paused_s)
        return float(wait_ms) / 1000

    async def take_poll(
        self, cid: ChannelId, polls_per_hour: float, site: str, network: RateLimit | None = None
    ) -> PollDelays:
        """Take a token of a channel's poll budget and one of its ``network``, unless the channel or ``site`` is paused.

        ``polls_per_hour`` is the rate of the channel's budget. Return the time to wait for each cause; the poll is
        granted if all times are 0.0. A poll that is refused because of a pause, or of the channel's own budget, takes
        no token. To save a round trip, tokens are taken while the pauses are read, and are returned if the poll is
        refused.
        """
        polls = RateLimit(cid, polls_per_hour / SECONDS_PER_HOUR, _POLLS_IN_A_ROW)
        commands: list[Command] = [
            _take_tokens((keys.poll_pause(cid), 0), {keys.poll_budget(cid): polls}),
            ("PTTL", keys.site_pause(site)),
        ]
        commands += [_network(network)] if network else []
        (poll_ms, channel_ms), site_kept_ms, *waits = await self._redis.call_many(commands)
        site_ms, network_ms = max(0, site_kept_ms - _PAUSE_KEPT_MS), sum(wait_ms for wait_ms, _ in waits)
        if channel_ms > 0 or site_ms > 0 or poll_ms > 0:
            taken = [keys.poll_budget(cid)] if channel_ms == poll_ms == 0 else []
            taken += [keys.site_budget(network.name)] if network and network_ms == 0 else []
            await self._redis.call_many([script_command("budget_return", (bucket,)) for bucket in taken])
        return PollDelays(max(channel_ms, site_ms) / 1000, poll_ms / 1000, network_ms / 1000)

    async def take_network(self, network: RateLimit) -> float:
        """Take a token of a network. Return 0.0 if it is granted, else the seconds until a token is available."""
        wait_ms, _ = await self._redis.call(*_network(network))
        return float(wait_ms) / 1000

    async def charge_network(self, network: RateLimit) -> None:
        """Take a token of a network after a request whose network was unknown before the response.

        The number of tokens can become negative, down to minus one burst.
        """
        await self._redis.call(*_network(network, min_tokens=-network.burst))

    async def site_rate(self, site: str) -> float | None:
        """Return the requests per second that an admin set for a site; None if none was set."""
        found: bytes | None = await self._redis.call("GET", keys.site_rate(site))
        return None if found is None else float(found)

    async def site_rates(self) -> dict[str, float]:
        """Return all rates that admins have set (requests per second), by site.

        The result is a copy of all rates for planning. When a request is granted or refused, the rate is read from a
        key of the site.
        """
        found: dict[bytes, bytes] = await self._redis.call("HGETALL", keys.SITE_RATES)
        return {site.decode(): float(rate) for site, rate in found.items()}

    async def set_site_rate(self, site: str, requests_per_s: float) -> None:
        """Set the requests per second to a site for the whole fleet. It replaces the rate in workers' settings."""
        await self._redis.call_many(
            [("SET", keys.site_rate(site), requests_per_s), ("HSET", keys.SITE_RATES, site, requests_per_s)]
        )

    async def clear_site_rate(self, site: str) -> None:
        """Remove the rate that an admin set for a site, so that the rate in the settings applies again."""
        await self._redis.call_many([("DEL", keys.site_rate(site)), ("HDEL", keys.SITE_RATES, site)])

    async def pause(self, cid: ChannelId, for_s: float) -> None:
        """Pause the polls of a channel for ``for_s`` seconds at its publisher's request.

        The pause replaces an earlier pause, except one that an admin has set.
        """
        await self._redis.run_script(
            "channel_pause_by_publisher", (keys.poll_pause(cid), keys.channel(cid)), max(1, int(for_s * 1000))
        )

    async def paused_s(self, cid: ChannelId, site: str = "") -> float:
        """Return the seconds until neither a channel nor its ``site`` is paused; 0.0 if neither is paused now."""
        channel_ms, site_s = await asyncio.gather(
            self._redis.call("PTTL", keys.poll_pause(cid)), self.site_paused_s(site)
        )
        return float(max(0, channel_ms / 1000, site_s))

    async def pause_site(self, site: str, for_s: float | None) -> float:
        """Pause all requests to a site for ``for_s`` seconds at its publisher's request; return the remaining seconds.

        A pause lasts between half a minute and a day. An active pause that ends later remains. If ``for_s`` is None,
        because the publisher stated no duration, the pause is twice as long as the last one.
        """
        asked_ms = 0 if for_s is None else max(1, int(min(for_s, LONGEST_SITE_PAUSE_S) * 1000))
        bounds_ms = int(SHORTEST_SITE_PAUSE_S * 1000), int(LONGEST_SITE_PAUSE_S * 1000)
        script_keys = (keys.site_pause(site), keys.site_budget(site))
        left_ms: int = await self._redis.run_script("site_pause", script_keys, asked_ms, _PAUSE_KEPT_MS, *bounds_ms)
        return left_ms / 1000

    async def site_paused_s(self, site: str) -> float:
        """Return the seconds until a site's pause ends; 0.0 if it is not paused."""
        return (await self.sites_paused_s([site]))[site]

    async def sites_paused_s(self, sites: Collection[str]) -> dict[str, float]:
        """Return the seconds until the pauses of these sites end, by site; 0.0 for a site that is not paused."""
        found = await self._redis.call_many([("PTTL", keys.site_pause(site)) for site in sites])
        return {site: max(0, left_ms - _PAUSE_KEPT_MS) / 1000 for site, left_ms in zip(sites, found, strict=True)}

    async def end_site_pause(self, site: str) -> None:
        """End a site's pause at an admin's request; its full rate applies again."""
        await self._redis.call_many([("DEL", keys.site_pause(site), keys.site_budget(site))])


def _network(network: RateLimit, *, min_tokens: int = 0) -> Command:
    return _take_of_site(network.name, {keys.site_budget(network.name): network}, min_tokens=min_tokens)


def _take_of_site(name: str, buckets: Mapping[str, RateLimit], *, min_tokens: int = 0) -> Command:
    """Return the command that takes a token of each bucket of the site or network ``name``, or none of them.

    ``buckets`` are limits by key. The command takes nothing if a bucket would have less than ``min_tokens`` tokens
    left.
    """
    return _take_tokens((keys.site_pause(name), _PAUSE_KEPT_MS), buckets, keys.site_rate(name), min_tokens=min_tokens)


def _take_tokens(pause: tuple[str, int], buckets: Mapping[str, RateLimit], *rate: str, min_tokens: int = 0) -> Command:
    """Return the command that takes a token of each of ``buckets`` (limits by key), or none of them.

    ``pause`` is a pair: the key of a pause, during which nothing is granted, and the time for which this key remains
    after the pause (ms). ``rate`` is empty, or the key of a rate that replaces the rates of the buckets. All keys must
    be in one slot. The command takes nothing if a bucket would have less than ``min_tokens`` tokens left; a negative
    number allows a debt.
    """
    key, kept_ms = pause
    shapes = (value for limit in buckets.values() for value in (limit.requests_per_s, limit.burst))
    return script_command("budget_take", (key, *buckets, *rate), min_tokens, kept_ms, *shapes)
