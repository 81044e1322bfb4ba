"""Limits on requests to publishers, for the whole fleet: token buckets, pauses, and blocked hosts (guarantee I9).

A bucket of ``burst`` tokens with a rate of r per second grants at most ``burst + r · t`` requests in any t seconds. If
a request needs tokens from several buckets in one slot, it takes all of them or none. If the buckets are in different
slots, a refused request may use up a token, but no request is granted without all its tokens.
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
    """Limit on requests to a site or network: its name, the average rate, and ``burst``, the bucket's size."""

    name: str
    requests_per_s: float
    burst: int


class PollDelays(NamedTuple):
    """Seconds until a channel may be polled, by cause. If all are 0.0, it may be polled now.

    ``paused_s`` is the remaining time of a pause, ``poll_s`` the wait for the channel's own budget, and ``network_s``
    the wait for the budget of the channel's network. During a pause, the channel's own budget is not read, and
    ``poll_s`` is 0.0.
    """

    paused_s: float
    poll_s: float
    network_s: float


class RequestBudgets(BatchedRepository):
    """Token buckets of sites, networks and channels, which limit requests to publishers.

    The bucket of a channel may exist before the channel does.
    """

    async def take_site(self, site: RateLimit, egress: RateLimit | None = None) -> float:
        """Take a token for one request to a site.

        Return 0.0 if the request is granted, else the seconds until a token is available. ``egress`` limits the
        requests to this site from all workers behind one public address. If an admin has set a rate for the site, it
        replaces both rates.
        """
        buckets = {keys.site_budget(site.name): site}
        if egress is not None:
            buckets[keys.egress_budget(site.name, egress.name)] = egress
        (wait_ms,) = await self._redis.call_many([_take(site.name, buckets)])
        return float(wait_ms) / 1000

    async def take_poll(self, cid: ChannelId, polls_per_hour: float, network: RateLimit | None = None) -> PollDelays:
        """Take a token of a channel's poll budget, unless the channel is paused, and a token of its ``network``.

        Return the time to wait for each; the poll is granted if all times are 0.0.
        """
        budget = keys.poll_pause(cid), keys.poll_budget(cid)
        commands = [script_command("poll_budget_take", budget, polls_per_hour / SECONDS_PER_HOUR, _POLLS_IN_A_ROW)]
        commands += [_network(network)] if network else []
        (paused_ms, poll_ms), *network_ms = await self._redis.call_many(commands)
        return PollDelays(paused_ms / 1000, poll_ms / 1000, sum(network_ms) / 1000)

    async def take_network(self, network: RateLimit) -> float:
        """Take a token of a network. Return 0.0 if it is granted, else the seconds until a token is available."""
        wait_ms: int = await self._redis.call(*_network(network))
        return wait_ms / 1000

    async def charge_network(self, network: RateLimit) -> None:
        """Take a token of a network after a request whose network was unknown before the response.

        The number of tokens can become negative, down to minus one burst.
        """
        await self._redis.call(*_network(network, least=-network.burst))

    async def site_rate(self, site: str) -> float | None:
        """Return the requests per second that an admin set for a site; None if none was set."""
        found: bytes | None = await self._redis.call("GET", keys.site_rate(site))
        return None if found is None else float(found)

    async def site_rates(self) -> dict[str, float]:
        """Return all rates that admins have set (requests per second), by site.

        The result is used for planning only; whether a request is granted depends on the key of its site.
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

    async def paused_s(self, cid: ChannelId) -> float:
        """Return the seconds until a channel's pause ends; 0.0 if it is not paused."""
        (left_ms,) = await self._redis.call_many([("PTTL", keys.poll_pause(cid))])
        return float(max(0, left_ms)) / 1000


def _network(network: RateLimit, *, least: int = 0) -> Command:
    return _take(network.name, {keys.site_budget(network.name): network}, least=least)


def _take(name: str, buckets: Mapping[str, RateLimit], *, least: int = 0) -> Command:
    """Return the command that takes a token of each of ``buckets`` (limits by key), or none of them.

    All keys must be in the slot of ``name``. After the command, each bucket must have at least ``least`` tokens; a
    negative number allows a debt.
    """
    shapes = (value for bound in buckets.values() for value in (bound.requests_per_s, bound.burst))
    return script_command("budget_take", (keys.site_rate(name), *buckets), least, *shapes)


MAX_BLOCKED_HOSTS = 10_000
"""Maximum number of blocked hosts and domains: every worker holds all of them in memory."""


class HostBlock(msgspec.Struct, frozen=True):
    """A block of a host: the admin who set it, the time (Unix s), and the reason ``why``, in the admin's words."""

    by: str
    at_s: float
    why: str = ""


class BlockedHosts(RedisRepository):
    """Hosts and domains that admins have blocked. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def all(self) -> dict[str, HostBlock]:
        """Return all blocks, by host or domain."""
        found: dict[bytes, bytes] = await self._redis.call("HGETALL", keys.BLOCKED_HOSTS)
        return {name.decode(): msgspec.json.decode(raw, type=HostBlock) for name, raw in found.items()}

    async def matching(self, hosts: Sequence[str]) -> list[str]:
        """Return, for each host in order, the blocked host or domain that includes it; "" if it is not blocked."""
        names = {host: host_and_parent_domains(host) for host in hosts if host}
        asked = list(dict.fromkeys(name for each in names.values() for name in each))
        if not asked:
            return [""] * len(hosts)
        found = await self._redis.call("HMGET", keys.BLOCKED_HOSTS, *asked)
        listed = {name for name, raw in zip(asked, found, strict=True) if raw is not None}
        return [next((name for name in names.get(host, ()) if name in listed), "") for host in hosts]

    async def check(self, host: str) -> None:
        """Raise :class:`HostBlocked` if a host, or a domain that contains it, is blocked."""
        (name,) = await self.matching([host])
        if name:
            raise HostBlocked("{host} is blocked here by an admin.", host=name)

    async def add(self, name: str, block: HostBlock) -> None:
        """Block the host or domain ``name``, with all hosts in it, from the workers' next maintenance interval on.

        Raises :class:`LimitReached` if ``MAX_BLOCKED_HOSTS`` hosts are blocked already.
        """
        if await self._redis.call("HLEN", keys.BLOCKED_HOSTS) >= MAX_BLOCKED_HOSTS:
            raise LimitReached(f"{MAX_BLOCKED_HOSTS:,} hosts are blocked already. Block a domain instead of its hosts.")
        await self._redis.call("HSET", keys.BLOCKED_HOSTS, name, msgspec.json.encode(block))

    async def remove(self, name: str) -> bool:
        """Unblock a host or domain; return False if it is not blocked."""
        return bool(await self._redis.call("HDEL", keys.BLOCKED_HOSTS, name))
