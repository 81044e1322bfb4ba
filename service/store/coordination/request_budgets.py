"""Limits on the requests that all workers together send to publishers: token buckets and pauses (guarantee I9).

A *token bucket* holds at most ``burst`` tokens, and r tokens are added per second. Each request takes a token, so at
most ``burst + r · t`` requests are granted in any t seconds. A request may need tokens from several buckets, and is
granted only if it gets all of them. If the buckets are in different cluster slots, a refused request may still use up a
token.
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
"""Minimum length of a site's pause in seconds. A first pause for which no duration was requested has this length."""
LONGEST_SITE_PAUSE_S = 86_400.0
_POLLS_IN_A_ROW = 3
_PAUSE_KEPT_MS = 3_600_000
"""How long a site's pause is remembered after its end (ms).

In the first minutes of this period, requests are granted at a lower rate. If the publisher requests another pause
without a duration, the new pause is twice as long as the remembered one.
"""


class RateLimit(NamedTuple):
    """A limit on the requests to the site or network called ``name``.

    - ``requests_per_s``: maximum average rate of requests.
    - ``burst``: number of requests that may be sent at once.
    """

    name: str
    requests_per_s: float
    burst: int


class PollDelays(NamedTuple):
    """How long a poll of a channel has to wait, for each possible cause.

    If all values are 0.0, the channel may be polled now.

    - ``paused_s``: seconds until the pauses of the channel and of its site have ended.
    - ``poll_s``: seconds until the limit on polls of this channel permits the poll.
    - ``network_s``: seconds until the limit on requests to the channel's network permits the poll.
    """

    paused_s: float
    poll_s: float
    network_s: float


class RequestBudgets(RedisRepository):
    """Decides whether requests to publishers may be sent now.

    The requests to each site and network and the polls of each channel are limited by a token bucket. A channel may
    have a bucket before the channel itself is created. Sites and channels can also be paused.
    """

    async def take_site(self, site: RateLimit, egress: RateLimit | None = None) -> float:
        """Ask for permission to send one request to a site; return 0.0 if it is granted, otherwise the seconds to wait.

        - ``site``: limit on the requests that all workers send to the site.
        - ``egress``: limit on the requests that workers behind one public address send to the site; None for no such
          limit.

        A rate that an admin has set for the site replaces the rates of both limits. For some minutes after a pause of
        the site, the rates are lower and bursts are not permitted. Raises :class:`RequestsPaused` while the site is
        paused.
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
        """Ask for permission to poll a channel; return how long to wait, for each possible cause.

        The poll is permitted if all values in the result are 0.0. In this case, one token is taken from the channel's
        bucket, and one from the network's bucket.

        - ``polls_per_hour``: maximum average rate of polls of this channel.
        - ``site``: the channel's site, which may be paused.
        - ``network``: limit on the requests to the channel's network; None for no such limit.
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
        """Ask for permission to send one request to a network; return 0.0 if granted, otherwise the seconds to wait."""
        wait_ms, _ = await self._redis.call(*_network(network))
        return float(wait_ms) / 1000

    async def charge_network(self, network: RateLimit) -> None:
        """Count a request whose network was not known before the request was sent.

        The request takes a token from the bucket of ``network`` in any case. The number of tokens may become
        negative, down to ``-network.burst``.
        """
        await self._redis.call(*_network(network, min_tokens=-network.burst))

    async def site_rate(self, site: str) -> float | None:
        """Return the rate that an admin has set for a site (requests per second); None if no rate was set."""
        found: bytes | None = await self._redis.call("GET", keys.site_rate(site))
        return None if found is None else float(found)

    async def site_rates(self) -> dict[str, float]:
        """Return a mapping from sites to the request rates that admins have set for them (requests per second).

        Sites without such a rate are not included. Use the result only for planning: for a short time after a change,
        it may differ from the rates that are enforced (:meth:`site_rate`).
        """
        # The rates are read from a copy in one key. Requests are granted by the rate in the site's own key.
        found: dict[bytes, bytes] = await self._redis.call("HGETALL", keys.SITE_RATES)
        return {site.decode(): float(rate) for site, rate in found.items()}

    async def set_site_rate(self, site: str, requests_per_s: float) -> None:
        """Set the maximum rate of requests to a site (requests per second, all workers together).

        It replaces the rate in the workers' settings.
        """
        await self._redis.call_many(
            [("SET", keys.site_rate(site), requests_per_s), ("HSET", keys.SITE_RATES, site, requests_per_s)]
        )

    async def clear_site_rate(self, site: str) -> None:
        """Remove the rate that an admin has set for a site. The rate in the workers' settings then applies again."""
        await self._redis.call_many([("DEL", keys.site_rate(site)), ("HDEL", keys.SITE_RATES, site)])

    async def pause(self, cid: ChannelId, for_s: float) -> None:
        """Pause the polling of a channel for ``for_s`` seconds, at the publisher's request.

        The new pause replaces an earlier one, unless the earlier one was set by an admin.
        """
        await self._redis.run_script(
            "channel_pause_by_publisher", (keys.poll_pause(cid), keys.channel(cid)), max(1, int(for_s * 1000))
        )

    async def paused_s(self, cid: ChannelId, site: str = "") -> float:
        """Return the seconds until the pauses of a channel and its site have both ended; 0.0 if neither is paused.

        If ``site`` is "", only the channel's pause counts.
        """
        commands: list[Command] = [("PTTL", keys.poll_pause(cid))]
        commands += [("PTTL", keys.site_pause(site))] if site else []
        channel_ms, *site_ms = await self._redis.call_many(commands)
        return float(max(0, channel_ms, *(left_ms - _PAUSE_KEPT_MS for left_ms in site_ms))) / 1000

    async def pause_site(self, site: str, for_s: float | None) -> float:
        """Pause all requests to a site at the publisher's request; return the seconds until the pause ends.

        ``for_s`` is the duration that the publisher has requested. If it is None, a new pause is twice as long as the
        site's last one. A pause lasts at least ``SHORTEST_SITE_PAUSE_S`` and at most ``LONGEST_SITE_PAUSE_S`` seconds.
        If the site is already paused, the present pause is not shortened.
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
        """Return a mapping from ``sites`` to the seconds until their pauses end; 0.0 for a site that is not paused."""
        found = await self._redis.call_many([("PTTL", keys.site_pause(site)) for site in sites])
        return {site: max(0, left_ms - _PAUSE_KEPT_MS) / 1000 for site, left_ms in zip(sites, found, strict=True)}

    async def end_site_pause(self, site: str) -> None:
        """End a site's pause at an admin's request. The site's full rate applies again immediately."""
        await self._redis.call_many([("DEL", keys.site_pause(site), keys.site_budget(site))])


def _network(network: RateLimit, *, min_tokens: int = 0) -> Command:
    return _take_of_site(network.name, {keys.site_budget(network.name): network}, min_tokens=min_tokens)


def _take_of_site(name: str, buckets: Mapping[str, RateLimit], *, min_tokens: int = 0) -> Command:
    """Return a command that takes one token from each bucket in ``buckets``, or no token at all.

    No token is taken during a pause of the site, or if too few tokens would be left in any bucket.

    - ``name``: the name of the site or network to which the buckets belong.
    - ``buckets``: maps the key of each bucket to its limit. If an admin has set a rate for the site, it replaces the
      rates in the limits.
    - ``min_tokens``: how many tokens must be left in each bucket. If this is negative, the number of tokens may
      become negative.
    """
    return _take_tokens((keys.site_pause(name), _PAUSE_KEPT_MS), buckets, keys.site_rate(name), min_tokens=min_tokens)


def _take_tokens(pause: tuple[str, int], buckets: Mapping[str, RateLimit], *rate: str, min_tokens: int = 0) -> Command:
    """Return a command that takes one token from each bucket in ``buckets``, or no token at all.

    No token is taken during a pause, or if too few tokens would be left in any bucket.

    - ``pause``: a pair (key, milliseconds). The key exists during the pause, and for this many milliseconds after its
      end.
    - ``buckets``: maps the key of each bucket to its limit.
    - ``rate``: a key. If it exists, it contains a rate that replaces the rates in all limits. This argument can be
      omitted.
    - ``min_tokens``: how many tokens must be left in each bucket. If this is negative, the number of tokens may
      become negative.

    All keys must be in the same cluster slot.
    """
    key, kept_ms = pause
    shapes = (value for limit in buckets.values() for value in (limit.requests_per_s, limit.burst))
    return script_command("budget_take", (key, *buckets, *rate), min_tokens, kept_ms, *shapes)
