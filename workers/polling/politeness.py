"""Limits on requests to publishers: budgets, pauses and blocked hosts, applied before every request.

All nodes share the budgets and pauses (guarantee I9). A request to a public URL takes a token from three budgets: those
of its channel (a feed or page), of its site (registrable domain), and of the network that answers. Requests to private
addresses are limited only by pauses.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping
from functools import lru_cache
from math import inf
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from service.errors import BadStatus, HostBlocked, LimitReached, RequestsPaused
from service.feeds.canonical_urls import host_of, is_loopback
from service.feeds.publisher_polling_hints import find_earliest_poll
from service.model import Channel, Validators
from service.net.address_guard import is_public
from service.net.sites_and_networks import address_group, host_and_parent_domains, site_of
from service.settings import Settings
from service.store.coordination.request_budgets import SECONDS_PER_HOUR, RateLimit, RequestBudgets
from workers.polling.poll_state import PollState

BURST = 5
"""Maximum number of requests that a publisher may receive in quick succession."""

# A request arrives later than its token was taken. One token is held back, because this delay may vary by 1/rate.
_GRANTED_BURST = BURST - 1

_TOO_MANY_REQUESTS, _UNAVAILABLE = 429, 503
_BUDGET_TIMEOUT_S = 20.0
_HINT_SHARE = 0.95
"""A channel is paused for this fraction of the interval that its publisher's hints request. Scheduled polls are a whole
interval apart. But after a poll that was late, the next one is due a little before the interval has passed."""
_MAX_CACHED_SITES = 2_000


class Politeness:
    """Limits the requests of one worker to publishers. Each request takes tokens from budgets that all workers share.

    Each ``acquire_…`` method returns as soon as the request may be sent. It raises

    - :class:`LimitReached` if the wait would be too long,
    - :class:`RequestsPaused` during a pause,
    - :class:`HostBlocked` if the host is blocked,
    - :class:`StoreUnavailable` if the store is unavailable.
    """

    def __init__(self, budgets: RequestBudgets, settings: Settings) -> None:
        self._budgets = budgets
        self._settings = settings
        self._policy = settings.policy()
        self._blocked_hosts: Container[str] = frozenset()
        self._queues: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def set_blocked_hosts(self, blocked_hosts: Container[str]) -> None:
        """Block requests to ``blocked_hosts`` (hosts and domains) and their subdomains; unblock all others."""
        self._blocked_hosts = blocked_hosts

    def raise_if_blocked(self, host: str) -> None:
        """Raise :class:`HostBlocked` if an admin has blocked ``host`` or one of its parent domains."""
        name = next((name for name in host_and_parent_domains(host) if name in self._blocked_hosts), "")
        if name:
            raise HostBlocked("{host} is blocked here by an admin.", host=name)

    async def acquire_request(self, channel: Channel) -> None:
        """Take the tokens (permissions) for a request to a channel that is not polled yet.

        The tokens come from the budgets of the channel and its site.
        """
        await self.acquire_poll(PollState(channel, Validators(), 1))
        await self.acquire_site(channel)

    async def acquire_poll(self, state: PollState) -> None:
        """Take the tokens (permissions) for a poll from the budgets of the channel and its network.

        The token of the channel's site is taken later, by :meth:`acquire_site`.
        """
        # The channel's budget grows with its number of subscribers (:meth:`FleetPolicy.most_polls_per_hour`).
        channel, group = state.channel, state.address_group
        host = host_of(channel.url)
        self.raise_if_blocked(host)
        site = pausable_site(channel.url)
        if not charged_site(channel):
            _raise_if_paused(host, await self._budgets.paused_s(channel.id, site))
            return
        network = self._network_limit(group) if group else None
        most_per_hour = self._policy.most_polls_per_hour(state.subscribers)
        delays = await self._budgets.take_poll(channel.id, most_per_hour, site, network)
        _raise_if_paused(host, delays.paused_s)
        if delays.poll_s > 0:
            raise LimitReached(f"This channel of {host} was polled often enough. Try again in {delays.poll_s:.0f} s.")
        if network and delays.network_s > 0:
            await self._acquire_in_turn(host, network.name, lambda: self._budgets.take_network(network))

    async def acquire_site(self, channel: Channel, within_s: float = inf) -> None:
        """Take a token (permission) for a request to a channel's site. The caller must send the request at once.

        If the site's budget cannot grant a token within ``within_s`` seconds, none is taken, and :class:`LimitReached`
        is raised.
        """
        # A caller that has to wait before sending must take another token; otherwise all waiting callers would send at
        # the same time.
        if charged_site(channel):
            await self._acquire_site_of(host_of(channel.url), within_s)

    async def acquire_redirect(self, host: str) -> None:
        """Take the token (permission) for a request to ``host`` that follows a redirect."""
        self.raise_if_blocked(host)
        if not is_loopback(host):
            await self._acquire_site_of(host)

    async def charge_network(self, address: str, charged_group: str = "") -> str:
        """Charge a request to the budget of the network that has responded; return the network.

        - ``address`` is the IP address that responded. If it is "" or not public, nothing is charged, and "" is
          returned.
        - ``charged_group`` is the network that was charged before the request, or "". This network is not charged
          again.
        """
        group = public_address_group(address)
        if group and group != charged_group:
            await self._budgets.charge_network(self._network_limit(group))
        return group

    async def on_refused(self, channel: Channel, refusal: BadStatus) -> None:
        """Pause requests as required by ``refusal``, the error response to a poll of ``channel``.

        - The status 429, or 503 with ``Retry-After``, pauses the site that responded. If a redirect led to another
          site, the channel is paused as well.
        - Any other status with ``Retry-After`` pauses the channel.
        """
        pause_s = refusal.retry_after_s
        if refusal.status == _TOO_MANY_REQUESTS or (refusal.status == _UNAVAILABLE and pause_s):
            site = pausable_site(refusal.url or channel.url)
            pause_s = await self._budgets.pause_site(site, pause_s)
            if site == pausable_site(channel.url):
                return
        if pause_s:
            await self._budgets.pause(channel.id, pause_s)

    async def apply_polling_hints(self, state: PollState, headers: Mapping[str, str], now_s: float) -> None:
        """Pause a public channel if its publisher's hints ask for fewer polls than the channel's budget permits.

        The hints come from the document (``state``), such as RSS's ``ttl``, and from the response's ``headers``, such
        as ``Cache-Control``. ``now_s`` is the Unix time in seconds.
        """
        # The channel is not paused if its own budget already permits polls only at longer intervals.
        if state.channel.private:
            return
        earliest = find_earliest_poll(headers, state.polling_hints, now_s)
        pause_s = (earliest.not_before_s - now_s) * (1.0 if earliest.is_skipping else _HINT_SHARE)
        if pause_s > SECONDS_PER_HOUR / self._policy.most_polls_per_hour(state.subscribers):
            await self._budgets.pause(state.channel.id, pause_s)

    def _network_limit(self, group: str) -> RateLimit:
        per_s = self._settings.address_requests_per_s
        return RateLimit(group, per_s, max(_GRANTED_BURST, int(per_s)))

    async def _acquire_site_of(self, host: str, within_s: float = inf) -> None:
        settings, site = self._settings, site_of(host)
        site_limit, egress_limit = RateLimit(site, settings.host_requests_per_s, _GRANTED_BURST), None
        if settings.egress_group:
            egress_limit = RateLimit(settings.egress_group, settings.egress_requests_per_s, _GRANTED_BURST)
        await self._acquire_in_turn(host, site, lambda: self._budgets.take_site(site_limit, egress_limit), within_s)

    async def _acquire_in_turn(
        self, host: str, budget: str, take: Callable[[], Awaitable[float]], within_s: float = inf
    ) -> None:
        """Call ``take`` until it returns 0. In between, wait for as many seconds as it returned.

        ``take`` takes a token from ``budget``. Callers that need a token from the same budget queue up. Raises
        :class:`LimitReached` for ``host`` if no token is granted within ``within_s`` seconds, or within
        ``_BUDGET_TIMEOUT_S``.
        """
        queue = self._queues.setdefault(budget, asyncio.Lock())
        timeout_at_s = asyncio.get_running_loop().time() + min(_BUDGET_TIMEOUT_S, within_s)
        try:
            async with asyncio.timeout_at(timeout_at_s), queue:
                while (wait_s := await take()) > 0:
                    if asyncio.get_running_loop().time() + wait_s > timeout_at_s:
                        raise TimeoutError  # noqa: TRY301 - no token will be granted in time
                    await asyncio.sleep(wait_s)
        except TimeoutError:
            raise LimitReached(f"The fleet's request limit for {host} is used up. Try again in a minute.") from None


def charged_site(channel: Channel) -> str:
    """Return the site whose budget is charged for polls of a channel; "" if its address is private or loopback."""
    # Private channels have no budget.
    host = host_of(channel.url)
    return "" if channel.private or is_loopback(host) else site_of(host)


@lru_cache(_MAX_CACHED_SITES)
def pausable_site(url: str) -> str:
    """Return the site to which a pause caused by ``url`` applies: its registrable domain.

    For a URL on this machine (loopback), this is the host with the port.
    """
    host = host_of(url)
    return urlsplit(url).netloc if is_loopback(host) else site_of(host)


def public_address_group(address: str) -> str:
    """Return the network to which requests to an IP address are charged; "" if the address is "" or not public."""
    return address_group(address) if address and is_public(address) else ""


def _raise_if_paused(host: str, paused_s: float) -> None:
    if paused_s > 0:
        raise RequestsPaused(f"{host} asked not to be polled for another {paused_s:.0f} s.", paused_s=paused_s)
