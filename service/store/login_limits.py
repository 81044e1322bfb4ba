"""Limits of login attempts: by address, by account from one address, by account from all, and by known browser.

An attempt counts in the windows of its network (of which /64 an IPv6 address counts as), of its account from that
network, and of its account. So guesses from one network lock out nobody elsewhere, and guesses from many networks are
bounded all the same. A browser that has logged in to the account before proves so with a cookie, and counts in windows
of its own: no stranger can lock it out. What is refused is not counted.

Of a browser's cookie only a hash is stored, over the token and the password's hash: a new password makes all browsers
unknown.
"""

import time
from typing import Final

from service.net.client_address import network_of
from service.store import console_keys
from service.store.accounts import Account, digest, new_token
from service.store.link import Link

BROWSER_TTL_S: Final = 90 * 24 * 3600
MOST_KNOWN_BROWSERS: Final = 20
"""Of one account; the one that logged in longest ago goes first."""

_MINUTE: Final = ("minute", 60)
_HOUR: Final = ("hour", 3600)
_OF_NETWORK: Final = 20
_OF_ACCOUNT_AND_NETWORK: Final = {_MINUTE: 5, _HOUR: 20}
"""Also of a known browser."""
_OF_ACCOUNT: Final = 100
"""Per hour. Five networks have to use up theirs before an account is closed to browsers that it does not know."""


class LoginLimits:
    """Counts login attempts and knows browsers. Every method may raise :class:`StoreUnavailable`."""

    def __init__(self, link: Link) -> None:
        """Use this link to Redis."""
        self._link = link

    async def attempt(self, name: str, address: str, known_browser: str = "") -> float:
        """Count an attempt on an account, before the password is looked at.

        ``known_browser`` is the token of a browser for which :meth:`is_known` holds, "" for others. Returns 0 if the
        attempt is allowed, else for how many seconds no other one is.
        """
        if known_browser:
            counted = _pairs(f"browser {known_browser}", _OF_ACCOUNT_AND_NETWORK)
        else:
            network = network_of(address)
            counted = [
                *_pairs(f"network {network}", {_MINUTE: _OF_NETWORK}),
                *_pairs(f"account {name} network {network}", _OF_ACCOUNT_AND_NETWORK),
                *_pairs(f"account {name}", {_HOUR: _OF_ACCOUNT}),
            ]
        limits = [number for _, *limit in counted for number in limit]
        wait_ms: int = await self._link.script("console_attempt", [key for key, *_ in counted], *limits)
        return wait_ms / 1000

    async def is_known(self, name: str, account: Account, token: str) -> bool:
        """Return whether the browser that sent this token has logged in to the account, with its present password."""
        until_s = await self._link.call("ZSCORE", _browsers_of(name), _member(account, token)) if token else None
        return until_s is not None and float(until_s) > time.time()

    async def remember(self, name: str, account: Account, token_before: str) -> str:
        """Return a token by which a browser is known from now on; the one that it had before is known no more."""
        token = new_token()
        members = _member(account, token), _member(account, token_before)
        await self._link.script("console_browser", [_browsers_of(name)], *members, BROWSER_TTL_S, MOST_KNOWN_BROWSERS)
        return token


def _pairs(what: str, limits: dict[tuple[str, int], int]) -> list[tuple[str, int, int]]:
    return [
        (console_keys.attempts(window, digest(what)), limit, window_s * 1000)
        for (window, window_s), limit in limits.items()
    ]


def _browsers_of(name: str) -> str:
    return console_keys.known_browsers(digest(name))


def _member(account: Account, token: str) -> str:
    return digest(f"{token} {account.secret} {account.created_s!r}")
