"""Limits of requests to publishers: token buckets and pauses of the fleet, on Redis's clock, and blocked hosts.

Whatever its parts, a bucket of ``most`` tokens and a rate grants at most ``most + rate · t`` requests in
any t seconds. Taking is all or nothing within a slot; across slots a refusal may cost a token, never give one.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from service.errors import HostBlocked, LimitReached
from service.model import ChannelId
from service.net.sites import host_and_parent_domains
from service.store.client import keys
from service.store.client.connection import BatchedRepository, Command, RedisRepository, script_command

SECONDS_PER_HOUR = 3600.0
_POLLS_IN_A_ROW = 3


class RateLimit(NamedTuple):
    """How often somebody named may be asked: requests per second on average, and how many in a row."""

    name: str
    requests_per_s: float
    burst: int


class PollDelays(NamedTuple):
    """Seconds until a channel's publisher may be asked, for each reason it may not be now; all 0.0 when it may.

    A pause that is left hides how full the channel's own budget is.
    """

    paused_s: float
    poll_s: float
    network_s: float


class RequestBudgets(BatchedRepository):
    """Budgets of sites and networks, by name, and of single channels, whether or not the store has these."""

    async def take_site(self, site: RateLimit, egress: RateLimit | None = None) -> float:
        """Take one request's token; return 0.0 if granted, else the seconds until one is there.

        ``egress`` is what those behind one address of ours may ask of this site. An admin's rate for the
        site overrides both rates.
        """
        buckets = {keys.site_budget(site.name): site}
        if egress is not None:
            buckets[keys.egress_budget(site.name, egress.name)] = egress
        (wait_ms,) = await self._redis.call_many([_take(site.name, buckets)])
        return float(wait_ms) / 1000

    async def take_poll(self, cid: ChannelId, polls_per_hour: float, network: RateLimit | None = None) -> PollDelays:
        """Take one of a channel's polls, unless it is paused, and a token of the network that answers for it."""
        budget = keys.poll_pause(cid), keys.poll_budget(cid)
        commands = [script_command("poll_take", budget, polls_per_hour / SECONDS_PER_HOUR, _POLLS_IN_A_ROW)]
        commands += [_network(network)] if network else []
        (paused_ms, poll_ms), *network_ms = await self._redis.call_many(commands)
        return PollDelays(paused_ms / 1000, poll_ms / 1000, sum(network_ms) / 1000)

    async def take_network(self, network: RateLimit) -> float:
        """Take one token of a network; return 0.0 if granted, else the seconds until one is there."""
        wait_ms: int = await self._redis.call(*_network(network))
        return wait_ms / 1000

    async def charge_network(self, network: RateLimit) -> None:
        """Charge a network for a request that it answered before we knew it would; a debt is at most a burst."""
        await self._redis.call(*_network(network, least=-network.burst))

    async def site_rate(self, site: str) -> float | None:
        """Return what an admin set as a site's requests per second; None if nobody did."""
        found: bytes | None = await self._redis.call("GET", keys.site_rate(site))
        return None if found is None else float(found)

    async def site_rates(self) -> dict[str, float]:
        """Return all that admins set, by site, for those who plan polls; what is granted is decided site by site."""
        found: dict[bytes, bytes] = await self._redis.call("HGETALL", keys.SITE_RATES)
        return {site.decode(): float(rate) for site, rate in found.items()}

    async def set_site_rate(self, site: str, requests_per_s: float) -> None:
        """Have every worker ask a site this often from now on, whatever the settings say."""
        await self._redis.call_many(
            [("SET", keys.site_rate(site), requests_per_s), ("HSET", keys.SITE_RATES, site, requests_per_s)]
        )

    async def clear_site_rate(self, site: str) -> None:
        """Have the settings decide again how often a site is asked."""
        await self._redis.call_many([("DEL", keys.site_rate(site)), ("HDEL", keys.SITE_RATES, site)])

    async def pause(self, cid: ChannelId, for_s: float) -> None:
        """Have nobody ask a channel's publisher for it for so long; the latest wish counts, but admins' before all."""
        await self._redis.run_script("pause", (keys.poll_pause(cid), keys.channel(cid)), max(1, int(for_s * 1000)))

    async def paused_s(self, cid: ChannelId) -> float:
        """Return how much of a channel's pause is left; 0.0 if there is none."""
        (left_ms,) = await self._redis.call_many([("PTTL", keys.poll_pause(cid))])
        return float(max(0, left_ms)) / 1000


def _network(network: RateLimit, *, least: int = 0) -> Command:
    return _take(network.name, {keys.site_budget(network.name): network}, least=least)


def _take(name: str, buckets: Mapping[str, RateLimit], *, least: int = 0) -> Command:
    """Return what takes a token of each bucket, all of them in the slot of ``name``, if ``least`` tokens stay."""
    shapes = (value for bound in buckets.values() for value in (bound.requests_per_s, bound.burst))
    return script_command("host_take", (keys.site_rate(name), *buckets), least, *shapes)


MAX_BLOCKED_HOSTS = 10_000
"""Every worker holds all of them."""


class HostBlock(msgspec.Struct, frozen=True):
    """Who wants a host left alone, since when (Unix s), and ``why``, in their words."""

    by: str
    at_s: float
    why: str = ""


class BlockedHosts(RedisRepository):
    """Hosts and domains that admins have blocked. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def all(self) -> dict[str, HostBlock]:
        """Return the whole list, by host or domain."""
        found: dict[bytes, bytes] = await self._redis.call("HGETALL", keys.BLOCKED_HOSTS)
        return {name.decode(): msgspec.json.decode(raw, type=HostBlock) for name, raw in found.items()}

    async def matching(self, hosts: Sequence[str]) -> list[str]:
        """Return what stands in the list for each of these hosts, in order; "" for nothing."""
        names = {host: host_and_parent_domains(host) for host in hosts if host}
        asked = list(dict.fromkeys(name for each in names.values() for name in each))
        if not asked:
            return [""] * len(hosts)
        found = await self._redis.call("HMGET", keys.BLOCKED_HOSTS, *asked)
        listed = {name for name, raw in zip(asked, found, strict=True) if raw is not None}
        return [next((name for name in names.get(host, ()) if name in listed), "") for host in hosts]

    async def check(self, host: str) -> None:
        """Raise :class:`HostBlocked` if a host, or a domain that it is of, is in the list."""
        (name,) = await self.matching([host])
        if name:
            raise HostBlocked("{host} is blocked here by an admin.", host=name)

    async def add(self, name: str, block: HostBlock) -> None:
        """Have nobody ask a host, or the hosts of a domain, from the next maintenance interval on.

        Raises :class:`LimitReached` when ``MAX_BLOCKED_HOSTS`` are blocked.
        """
        if await self._redis.call("HLEN", keys.BLOCKED_HOSTS) >= MAX_BLOCKED_HOSTS:
            raise LimitReached(f"{MAX_BLOCKED_HOSTS:,} hosts are blocked already. Block a domain instead of its hosts.")
        await self._redis.call("HSET", keys.BLOCKED_HOSTS, name, msgspec.json.encode(block))

    async def remove(self, name: str) -> bool:
        """Take a host or domain off the list; False if it is not in it."""
        return bool(await self._redis.call("HDEL", keys.BLOCKED_HOSTS, name))
