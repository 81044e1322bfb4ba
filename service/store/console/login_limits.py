"""Limits on login attempts to the console, for each network and each account.

Each attempt is counted three times: for its network, for the account in this network, and for the account in all
networks. For IPv6, a network is a /64 prefix. Attempts from one network thus cannot lock out users in other networks,
but attempts from many networks are limited too. Refused attempts are not counted.

A browser that has already logged in to the account has a cookie that proves this. Attempts from such a browser are
counted separately, so that strangers' attempts cannot lock it out. When the password changes, these cookies become
invalid.
"""

# The stored hash covers the cookie's token and the password hash.

import time
from typing import Final

from service.net.client_address import network_of
from service.store.client import keys
from service.store.client.redis_client import RedisRepository
from service.store.console.accounts import Account, digest, new_token

BROWSER_TTL_S: Final = 90 * 24 * 3600


MAX_KNOWN_BROWSERS: Final = 20
"""Maximum number of known browsers of one account. If there are more, those with the oldest logins are dropped."""


_MINUTE: Final = ("minute", 60)


_HOUR: Final = ("hour", 3600)


_NETWORK_LIMIT: Final = 20


_ACCOUNT_AND_NETWORK_LIMITS: Final = {_MINUTE: 5, _HOUR: 20}
"""Maximum number of login attempts in each time window, for one account from one network or one known browser."""


_ACCOUNT_LIMIT: Final = 100
"""Maximum number of login attempts per hour for one account from all unknown browsers.

A single network has a lower limit, so it takes attempts from at least five networks to reach this limit.
"""


class LoginLimits(RedisRepository):
    """Counts login attempts, and records which browsers have logged in.

    Every method may raise :class:`service.errors.StoreUnavailable`.
    """

    async def count_attempt(self, name: str, address: str, known_browser: str = "") -> float:
        """Count a login attempt; return 0 if it is allowed, otherwise the seconds until the next one will be allowed.

        Call this before verifying the password.

        - ``name``: the account's name.
        - ``address``: the client's IP address.
        - ``known_browser``: the browser's token if :meth:`is_known_browser` is true for it; "" for other browsers.
        """
        if known_browser:
            counted = _counters(f"browser {known_browser}", _ACCOUNT_AND_NETWORK_LIMITS)
        else:
            network = network_of(address)
            counted = [
                *_counters(f"network {network}", {_MINUTE: _NETWORK_LIMIT}),
                *_counters(f"account {name} network {network}", _ACCOUNT_AND_NETWORK_LIMITS),
                *_counters(f"account {name}", {_HOUR: _ACCOUNT_LIMIT}),
            ]
        limits = [number for _, *limit in counted for number in limit]
        wait_ms: int = await self._redis.run_script("console_count_attempt", [key for key, *_ in counted], *limits)
        return wait_ms / 1000

    async def is_known_browser(self, name: str, account: Account, token: str) -> bool:
        """Return whether a browser has logged in to the account within the last ``BROWSER_TTL_S`` seconds.

        ``token`` is the token that the browser has sent, or "" if it has sent none. A valid token is one that
        :meth:`remember_browser` returned when the browser logged in. It becomes invalid when the password changes.
        """
        until_s = await self._redis.call("ZSCORE", _browsers_of(name), _browser_hash(account, token)) if token else None
        return until_s is not None and float(until_s) > time.time()

    async def remember_browser(self, name: str, account: Account, token_before: str) -> str:
        """Record that a browser has logged in to the account; return a new token with which the browser can prove this.

        The new token replaces the browser's previous token, ``token_before``.
        """
        token, key, now_s = new_token(), _browsers_of(name), time.time()
        await self._redis.call_many(
            [
                ("ZREM", key, _browser_hash(account, token_before)),
                ("ZREMRANGEBYSCORE", key, "-inf", now_s),
                ("ZADD", key, now_s + BROWSER_TTL_S, _browser_hash(account, token)),
                ("ZREMRANGEBYRANK", key, 0, -1 - MAX_KNOWN_BROWSERS),
                ("EXPIRE", key, BROWSER_TTL_S),
            ]
        )
        return token


def _counters(what: str, limits: dict[tuple[str, int], int]) -> list[tuple[str, int, int]]:
    return [
        (keys.login_attempts(window, digest(what)), limit, window_s * 1000)
        for (window, window_s), limit in limits.items()
    ]


def _browsers_of(name: str) -> str:
    return keys.known_browsers(digest(name))


def _browser_hash(account: Account, token: str) -> str:
    return digest(f"{token} {account.secret} {account.created_s!r}")
