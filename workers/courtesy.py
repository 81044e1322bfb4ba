"""What publishers are owed: no more polls than agreed, whichever node or person wants them, and peace on request.

Budgets and pauses are the whole fleet's (guarantee I9). Only pauses hold for private addresses.
"""

import asyncio
import ipaddress
from urllib.parse import urlsplit

from service.errors import LimitReached
from service.model import Channel
from service.store.hosts import Hosts

_WAIT_FOR_BUDGET_S = 20.0


class Courtesy:
    """Asks the fleet's budgets before a publisher is asked."""

    def __init__(self, hosts: Hosts, *, requests_per_s: float, polls_per_hour: float) -> None:
        self._hosts = hosts
        self._requests_per_s = requests_per_s
        self._polls_per_hour = polls_per_hour

    async def may_ask(self, channel: Channel) -> None:
        """Return as soon as the publisher may be asked for the channel. Raises :class:`LimitReached` if not soon."""
        host = urlsplit(channel.url).hostname or ""
        if (wait_s := await self._hosts.paused_s(channel.id)) > 0:
            raise LimitReached(f"{host} was not asked: it wants to be left alone for another {wait_s:.0f} s.")
        if channel.private or _is_loopback(host):
            return
        if (wait_s := await self._hosts.take_poll(channel.id, self._polls_per_hour)) > 0:
            raise LimitReached(f"{host} was not asked: it was, often enough. Try again in {wait_s:.0f} s.")
        await self._within_budget(host)

    async def may_follow(self, host: str) -> None:
        """Return as soon as a redirect to this host may be followed. Raises :class:`LimitReached` if not soon."""
        if not _is_loopback(host):
            await self._within_budget(host)

    async def leave_alone(self, channel: Channel, for_s: float) -> None:
        """Heed a ``Retry-After`` (seconds)."""
        await self._hosts.pause(channel.id, for_s)

    async def _within_budget(self, host: str) -> None:
        waited_s = 0.0
        while (wait_s := await self._hosts.take(host, self._requests_per_s)) > 0:
            waited_s += wait_s
            if waited_s > _WAIT_FOR_BUDGET_S:
                raise LimitReached(f"{host} was not asked: the fleet's budget for this host is used up for now.")
            await asyncio.sleep(wait_s)


def _is_loopback(host: str) -> bool:
    """Say whether a URL's host means this machine: there the guard decides, not politeness."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
