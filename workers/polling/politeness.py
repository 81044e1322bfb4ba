"""What publishers are owed: no more requests than agreed, whichever node or person wants them, and peace on request.

Budgets and pauses are the whole fleet's (guarantee I9). A public URL costs a token of its channel, of its
site, and of the network that answers for it; for private addresses only pauses hold.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Container
from functools import lru_cache
from weakref import WeakValueDictionary

from service.errors import HostBlocked, LimitReached
from service.feeds.urls import host_of
from service.model import Channel
from service.net.address_guard import is_public
from service.net.sites import address_group, host_and_parent_domains, site_of
from service.settings import Settings
from service.store.coordination.request_budgets import SECONDS_PER_HOUR, RateLimit, RequestBudgets

BURST = 5
"""Requests that a publisher may see in a row."""

# A request arrives later than its token was taken. That this may vary by 1/rate is paid for by a token kept back.
_GRANTED_IN_A_ROW = BURST - 1

_WAIT_FOR_BUDGET_S = 20.0
_HOSTS_KEPT = 10_000


class Politeness:
    """Asks the fleet's budgets before a publisher is asked."""

    def __init__(self, hosts: RequestBudgets, settings: Settings) -> None:
        self._hosts = hosts
        self._settings = settings
        self._blocked: Container[str] = frozenset()
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def block(self, blocked: Container[str]) -> None:
        """Have nobody ask these hosts, and those of these domains, from now on; all others may be asked."""
        self._blocked = blocked

    def refuse_blocked(self, host: str) -> None:
        """Raise :class:`HostBlocked` if admins want a host not to be asked."""
        name = next((name for name in host_and_parent_domains(host) if name in self._blocked), "")
        if name:
            raise HostBlocked("{host} is blocked here by an admin.", host=name)

    async def may_ask(self, channel: Channel) -> None:
        """Return as soon as the publisher may be asked for the channel.

        Raises :class:`LimitReached` if not soon, :class:`HostBlocked` if not at all.
        """
        await self.may_poll(channel)
        await self.may_reach(channel)

    async def may_poll(self, channel: Channel, address_group: str = "") -> None:
        """Return as soon as the channel may be polled, as far as its site can be reached. Raises as :meth:`may_ask`.

        ``address_group`` is what :meth:`answered` said of the channel's last answer, if there was one.
        """
        host = host_of(channel.url)
        self.refuse_blocked(host)
        if not charged_site(channel):
            _refuse_in_pause(host, await self._hosts.paused_s(channel.id))
            return
        network = self._network(address_group) if address_group else None
        waits = await self._hosts.take_poll(channel.id, self._settings.max_polls_per_hour, network)
        _refuse_in_pause(host, waits.paused_s)
        if waits.poll_s > 0:
            raise LimitReached(f"{host} was not asked: it was, often enough. Try again in {waits.poll_s:.0f} s.")
        if network and waits.network_s > 0:
            await self._in_line(host, network.name, lambda: self._hosts.take_network(network))

    async def may_reach(self, channel: Channel) -> None:
        """Return as soon as the channel's site may be asked, to be asked at once. Raises as :meth:`may_ask`.

        Whoever waits afterwards has to ask again: grants that were kept would be used all together.
        """
        if charged_site(channel):
            await self._take(host_of(channel.url))

    async def may_follow(self, host: str) -> None:
        """Return as soon as a redirect to this host may be followed. Raises as :meth:`may_ask`."""
        self.refuse_blocked(host)
        if not _is_loopback(host):
            await self._take(host)

    async def answered(self, address: str, charged_group: str = "") -> str:
        """Return the address group of who answered a request, charging it unless ``charged_group`` was this one.

        ``address`` is the peer's; that of nobody ("") and those that are not public have no group: "".
        """
        group = public_group(address)
        if group and group != charged_group:
            await self._hosts.charge(self._network(group))
        return group

    async def leave_alone(self, channel: Channel, for_s: float) -> None:
        """Heed a ``Retry-After`` (seconds)."""
        await self._hosts.pause(channel.id, for_s)

    async def heed(self, channel: Channel, for_s: float) -> None:
        """Heed a wish to be asked again only after ``for_s``, if the channel's budget does not see to that anyway."""
        if for_s > SECONDS_PER_HOUR / self._settings.max_polls_per_hour:
            await self._hosts.pause(channel.id, for_s)

    def _network(self, group: str) -> RateLimit:
        per_s = self._settings.address_requests_per_s
        return RateLimit(group, per_s, max(_GRANTED_IN_A_ROW, int(per_s)))

    async def _take(self, host: str) -> None:
        settings, site = self._settings, site_of(host)
        bound, egress = RateLimit(site, settings.host_requests_per_s, _GRANTED_IN_A_ROW), None
        if settings.egress_group:
            egress = RateLimit(settings.egress_group, settings.egress_requests_per_s, _GRANTED_IN_A_ROW)
        await self._in_line(host, site, lambda: self._hosts.take(bound, egress))

    async def _in_line(self, host: str, budget: str, take: Callable[[], Awaitable[float]]) -> None:
        """Take from a budget as soon as it grants. Of each worker one at a time asks it again and again."""
        line = self._lines.setdefault(budget, asyncio.Lock())
        patient_until_s = asyncio.get_running_loop().time() + _WAIT_FOR_BUDGET_S
        try:
            async with asyncio.timeout_at(patient_until_s), line:
                while (wait_s := await take()) > 0:
                    if asyncio.get_running_loop().time() + wait_s > patient_until_s:
                        raise TimeoutError  # noqa: TRY301 - there is no use in waiting for it to come
                    await asyncio.sleep(wait_s)
        except TimeoutError:
            raise LimitReached(f"{host} was not asked: the fleet's budget for it is used up for now.") from None


def charged_site(channel: Channel) -> str:
    """Return the site whose budget polls of a channel are taken from; "" if there is none."""
    host = host_of(channel.url)
    return "" if channel.private or _is_loopback(host) else site_of(host)


def public_group(address: str) -> str:
    """Return the address group of a peer; "" of nobody (""), and of one that is not public."""
    return address_group(address) if address and is_public(address) else ""


def _refuse_in_pause(host: str, paused_s: float) -> None:
    if paused_s > 0:
        raise LimitReached(f"{host} was not asked: it wants to be left alone for another {paused_s:.0f} s.")


@lru_cache(_HOSTS_KEPT)
def _is_loopback(host: str) -> bool:
    """Say whether a URL's host means this machine: there the guard decides, not politeness."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
