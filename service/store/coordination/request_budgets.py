"""Limits on the requests of all workers to publishers: token buckets and pauses (guarantee I9).

A bucket of the size ``burst`` that is refilled with r tokens per second grants at most ``burst + r · t`` requests in
any t seconds. A request may need tokens from several buckets. No request is granted without all its tokens. If the
buckets are in different cluster slots, a refused request may use up a token.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from service.errors import RequestsPaused
from service.model import ChannelId
from service.store.client import keys
from service.store.client.node_connections import Command
from service.store.client.redis_client import RedisRepository, script_command

SECONDS_PER_HOUR = 3600.0
SHORTEST_SITE_PAUSE_S = 30.0
"""Minimum length of a site's pause in seconds. It is also the length of a first pause without a stated duration."""
LONGEST_SITE_PAUSE_S = 86_400.0
_POLLS_IN_A_ROW = 3
_PAUSE_KEPT_MS = 3_600_000
"""Time for which a site's pause is remembered after its end.

In the first minutes of this time, requests are granted at a lower rate. If the publisher requests another pause without
a duration, the new pause is twice as long as the remembered one.
"""


class RateLimit(NamedTuple):
    """Limit on requests to a site or network.

    It has a name, an average rate, and ``burst``, the number of requests that may be sent at once.
    """

    name: str
    requests_per_s: float
    burst: int


class PollDelays(NamedTuple):
    """Seconds until a channel may be polled, by cause. If all are 0.0, it may be polled now.

    - ``paused_s``: until the pause of the channel or of its site ends.
    - ``poll_s``: until the channel's own limit permits a poll.
    - ``network_s``: until the limit of the channel's network permits a poll.
    """

    paused_s: float
    poll_s: float
    network_s: float


class RequestBudgets(RedisRepository):
    """Limits on requests to publishers: token buckets of sites, networks and channels.

    The channel of a bucket need not exist yet.
    """

    async def take_site(self, site: RateLimit, egress: RateLimit | None = None) -> float:
        """Ask for permission for one request to a site.

        Return 0.0 if the request is permitted, else the seconds until one may be permitted.

        - ``site``: limit on the requests of all workers.
        - ``egress``: limit on the requests of all workers behind one public address; None for no such limit.

        A rate that an admin has set for the site replaces the rates of both limits. In the minutes after a pause of the
        site, the rates are lower and there are no bursts. Raises :class:`RequestsPaused` while the site is paused.
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
        """Ask for permission to poll a channel; return how long to wait for each cause.

        The poll is permitted if all times are 0.0. Then a token is taken from the limits of the channel and of its
        ``network``.

        - ``polls_per_hour``: rate of the channel's own limit.
        - ``site``: the channel's site, which may be paused.
        """
        # A poll that a pause or the channel's own budget refuses takes no token. To save a round trip, tokens are taken
        # while the pauses are read, and are returned after such a refusal.
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
        """Ask for permission for one request to a network; return 0.0 if permitted, else the seconds to wait."""
        wait_ms, _ = await self._redis.call(*_network(network))
        return float(wait_ms) / 1000

    async def charge_network(self, network: RateLimit) -> None:
        """Count a request that was already sent, because its network was unknown before the request.

        The request uses up a token of ``network``. The number of tokens may become negative, down to
        ``-network.burst``.
        """
        await self._redis.call(*_network(network, min_tokens=-network.burst))

    async def site_rate(self, site: str) -> float | None:
        """Return the requests per second that an admin set for a site; None if none was set."""
        found: bytes | None = await self._redis.call("GET", keys.site_rate(site))
        return None if found is None else float(found)

    async def site_rates(self) -> dict[str, float]:
        """Return all rates that admins have set (requests per second), by site.

        The result is meant for planning. Whether a request is permitted depends on :meth:`site_rate`.
        """
        # The rates are read from a copy in one key. Requests are granted by the rate in the site's own key.
        found: dict[bytes, bytes] = await self._redis.call("HGETALL", keys.SITE_RATES)
        return {site.decode(): float(rate) for site, rate in found.items()}

    async def set_site_rate(self, site: str, requests_per_s: float) -> None:
        """Set the requests per second to a site for the whole fleet, instead of the rate in the workers' settings."""
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
        """Return the remaining time of the pause of a channel or of its ``site``, in seconds.

        If both are paused, the result is the longer time. It is 0.0 if neither is paused.
        """
        commands: list[Command] = [("PTTL", keys.poll_pause(cid))]
        commands += [("PTTL", keys.site_pause(site))] if site else []
        channel_ms, *site_ms = await self._redis.call_many(commands)
        return float(max(0, channel_ms, *(left_ms - _PAUSE_KEPT_MS for left_ms in site_ms))) / 1000

    async def pause_site(self, site: str, for_s: float | None) -> float:
        """Pause all requests to a site at its publisher's request; return the seconds until the pause ends.

        ``for_s`` is the requested duration. If it is None, the pause is twice as long as the last one. A pause lasts
        ``SHORTEST_SITE_PAUSE_S`` to ``LONGEST_SITE_PAUSE_S`` seconds. A present pause is never shortened.
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
    """Return the command that takes a token from each bucket of the site or network ``name``, or from none of them.

    ``buckets`` maps the key of each bucket to its limit. No token is taken if a bucket would have fewer than
    ``min_tokens`` tokens left.
    """
    return _take_tokens((keys.site_pause(name), _PAUSE_KEPT_MS), buckets, keys.site_rate(name), min_tokens=min_tokens)


def _take_tokens(pause: tuple[str, int], buckets: Mapping[str, RateLimit], *rate: str, min_tokens: int = 0) -> Command:
    """Return the command that takes a token from each bucket, or from none of them.

    - ``pause``: key of a pause, during which no token is taken, and how long this key is kept after the pause (ms).
    - ``buckets``: the limit of each bucket, by the bucket's key.
    - ``rate``: nothing, or the key of a rate that replaces the rates of the limits.
    - ``min_tokens``: number of tokens that must be left in each bucket. A negative number allows a debt.

    All keys must be in one cluster slot.
    """
    key, kept_ms = pause
    shapes = (value for limit in buckets.values() for value in (limit.requests_per_s, limit.burst))
    return script_command("budget_take", (key, *buckets, *rate), min_tokens, kept_ms, *shapes)
