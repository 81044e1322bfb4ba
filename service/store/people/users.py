"""State and settings of users, their home addresses, and their preferences for subscriptions.

A user's home address is the address of the bot to which the user first wrote. Only this bot writes to the user. The
preferences are defined in :mod:`service.users.preferences`.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from service.model import UserId
from service.net.sites_and_networks import domain_of_jid
from service.store.client import keys
from service.store.client.keys import user_id
from service.store.client.redis_client import RedisClient, RedisRepository, script_command
from service.store.coordination.host_blocklist import BlockedHosts
from service.users.preferences import NO_PREFERENCES, Preferences, PreferencesByNumber
from service.users.user_settings import DEFAULT_USER_SETTINGS, UserSettings


class UserState(msgspec.Struct, frozen=True):
    """The state of a user.

    - ``welcomed``: whether the welcome message was sent.
    - ``receipts``: whether the user's client sends receipts (XEP-0184).
    - ``unreachable``: whether deliveries are suspended because messages bounced.
    - ``suspended``: whether an admin has suspended the user or blocked the user's domain.
    - ``most_subscriptions``: the user's maximum number of subscriptions, set by an admin; None if the general maximum
      in the settings applies.

    ``suspended`` and ``most_subscriptions`` are kept when the user is erased.
    """

    jid: str
    welcomed: bool = False
    receipts: bool = False
    unreachable: bool = False
    user_settings: UserSettings = DEFAULT_USER_SETTINGS
    suspended: bool = False
    most_subscriptions: int | None = None


_SETTINGS_FIELDS: Final = ("habits", "client_language")


def _decode_user_settings(written: bytes | None, client_language: bytes | None) -> UserSettings:
    user_settings = msgspec.json.decode(written, type=UserSettings) if written else DEFAULT_USER_SETTINGS
    if not client_language:
        return user_settings
    return msgspec.structs.replace(user_settings, client_language=client_language.decode())


class Users(RedisRepository):
    """The state and settings of all users, looked up by bare JID or user id."""

    def __init__(self, redis: RedisClient, blocked_domains: BlockedHosts) -> None:
        """Create the repository. Users whose domain is in ``blocked_domains`` are treated as suspended."""
        super().__init__(redis)
        self._blocked_domains = blocked_domains

    async def get(self, jid: str) -> UserState:
        """Return the state of a user, or the default state if the user is unknown."""
        uid = keys.user_id(jid)
        found, (suspended, most) = await self._redis.call_many(
            [
                ("HMGET", keys.user(uid), "welcomed", "receipts", "unreachable", *_SETTINGS_FIELDS),
                ("HMGET", keys.restrictions(uid), "suspended", "most_subscriptions"),
            ]
        )
        welcomed, receipts, unreachable, *user_settings = found
        return UserState(
            jid,
            welcomed == b"1",
            receipts == b"1",
            unreachable is not None,
            _decode_user_settings(*user_settings),
            suspended == b"1" or bool(await self.jids_of_blocked_domains([jid])),
            int(most) if most else None,
        )

    async def jids(self, uids: Sequence[UserId]) -> list[str]:
        """Return the bare JID of each user, in order; "" for an unknown user."""
        found = await self._redis.call_many([("HGET", keys.user(uid), "jid") for uid in uids])
        return [jid.decode() if jid else "" for jid in found]

    async def suspended_users(self, uids: Iterable[UserId]) -> set[UserId]:
        """Return the users in ``uids`` whom an admin has suspended, or whose domain an admin has blocked."""
        asked = list(uids)
        found = await self._redis.call_many([("HGET", keys.restrictions(uid), "suspended") for uid in asked])
        suspended = {uid for uid, value in zip(asked, found, strict=True) if value == b"1"}
        return suspended | await self.users_of_blocked_domains(asked)

    async def users_of_blocked_domains(self, uids: Sequence[UserId]) -> set[UserId]:
        """Return the users in ``uids`` whose domain an admin has blocked. Unknown users are omitted."""
        if not uids or await self._blocked_domains.is_empty():
            return set()
        jids = await self.jids(uids)
        blocked = await self.jids_of_blocked_domains(jids)
        return {uid for uid, jid in zip(uids, jids, strict=True) if jid in blocked}

    async def jids_of_blocked_domains(self, jids: Sequence[str]) -> set[str]:
        """Return the addresses in ``jids`` for which an admin has blocked the domain or one of its parent domains."""
        domains = [domain_of_jid(jid) for jid in jids]
        matching = await self._blocked_domains.matching(domains)
        return {jid for jid, blocked in zip(jids, matching, strict=True) if blocked}

    async def mark_welcomed(self, jid: str) -> None:
        """Record that the welcome message was sent to a user.

        If the user was erased earlier and restrictions were kept, these restrictions no longer expire.
        """
        uid = keys.user_id(jid)
        await self._redis.call_many(
            [("PERSIST", keys.restrictions(uid)), ("ZREM", keys.ERASED_USERS_WITH_RESTRICTIONS, uid)]
        )
        await self._store_fields(jid, "welcomed", "1")

    async def _store_fields(self, jid: str, *fields: str | bytes) -> None:
        uid = keys.user_id(jid)
        await self._redis.call_many([("SADD", keys.USERS, uid), ("HSET", keys.user(uid), "jid", jid, *fields)])

    async def user_settings(self, uids: Sequence[UserId]) -> list[UserSettings]:
        """Return the settings of each user, in order."""
        found = await self._redis.call_many([("HMGET", keys.user(uid), *_SETTINGS_FIELDS) for uid in uids])
        return [_decode_user_settings(*values) for values in found]

    async def recipients(self, uids: Sequence[UserId]) -> list[tuple[UserSettings, bool]]:
        """Return a tuple for each user, in order: the user's settings, and whether the user's client sends receipts."""
        found = await self._redis.call_many([("HMGET", keys.user(uid), *_SETTINGS_FIELDS, "receipts") for uid in uids])
        return [(_decode_user_settings(*user_settings), receipts == b"1") for *user_settings, receipts in found]

    async def set_user_settings(self, jid: str, user_settings: UserSettings) -> None:
        """Store a user's settings, except the language that the user's client declares, which is left unchanged."""
        await self._store_fields(
            jid, "habits", msgspec.json.encode(msgspec.structs.replace(user_settings, client_language=""))
        )

    async def set_client_language(self, jid: str, tag: str) -> None:
        """Store ``tag``, the language that a user's client declares."""
        await self._store_fields(jid, "client_language", tag)

    async def mark_receipts(self, uids: Sequence[UserId]) -> None:
        """Record that these users' clients send receipts."""
        await self._redis.call_many(
            [script_command("user_set_field", (keys.user(uid),), "receipts", "1") for uid in uids]
        )

    async def count_use(self, jid: str, what: str, limit: int, per_s: float) -> bool:
        """Count a user's use of a limited function; return whether the use is within the limit.

        ``what`` names the function, for example "import". The limit is ``limit`` uses in ``per_s`` seconds. This
        period begins with the first use.
        """
        key = keys.usage_count(keys.user_id(jid), what)
        return bool(await self._redis.run_script("usage_count", (key,), limit, int(per_s * 1000)))

    async def are_known(self, uids: Sequence[UserId]) -> list[bool]:
        """Return, for each user in order, whether the store has data about the user."""
        return [bool(found) for found in await self._redis.call_many([("EXISTS", keys.user(uid)) for uid in uids])]

    async def next_number(self, jid: str, what: Literal["numbers", "watches"]) -> int:
        """Return the number that a user's next subscription ("numbers") or saved search ("watches") would get."""
        return int(await self._redis.call("HGET", keys.user(keys.user_id(jid)), what) or 0) + 1

    async def count(self) -> int:
        """Return how many users have ever written to a bot and have not been erased."""
        return int(await self._redis.call("SCARD", keys.USERS))


_ARRIVAL_TTL_S: Final = 3_600


class HomeAddresses(RedisRepository):
    """The home address of each user: the address of the bot that writes to the user.

    Every method may raise :class:`StoreUnavailable`.
    """

    async def of_users(self, uids: Sequence[UserId]) -> list[str]:
        """Return the home address of each user, in order; "" if it is unknown."""
        found = await self._redis.call_many([("GET", keys.home_address(uid)) for uid in uids])
        return [address.decode() if address else "" for address in found]

    async def record_arrival(self, jid: str, address: str) -> None:
        """Record ``address``, for an hour, as the home address of a user who has not been admitted yet.

        A home address that is already recorded is not changed.
        """
        await self._redis.call("SET", keys.home_address(user_id(jid)), address, "NX", "EX", _ARRIVAL_TTL_S)

    async def keep(self, jid: str) -> None:
        """Make a user's home address permanent, because the user has been admitted."""
        await self._redis.call("PERSIST", keys.home_address(user_id(jid)))

    async def set(self, jids: Sequence[str], address: str) -> None:
        """Set the home address of group chats to ``address``: the address of the bot that takes part in these chats."""
        await self._redis.call_many([("SET", keys.home_address(user_id(jid)), address) for jid in jids])


_NOTHING: Final[PreferencesByNumber] = {}
"""The value for users without preferences.

It is one shared object, which saves memory, because callers cache the preferences of each recipient.
"""


class PreferenceStore(RedisRepository):
    """Each user's preferences, stored under the number of the subscription to which they apply.

    Methods may raise :class:`service.errors.StoreUnavailable`.
    """

    async def of_users(self, uids: Sequence[UserId]) -> list[PreferencesByNumber]:
        """Return the preferences of each user, in order.

        A user's preferences are a mapping whose keys are the numbers of subscriptions; 0 stands for all subscriptions,
        and negative numbers stand for folders.
        """
        found = await self._redis.call_many([("HGETALL", keys.preferences(uid)) for uid in uids])
        return [
            {int(number): msgspec.msgpack.decode(packed, type=Preferences) for number, packed in held.items()}
            if held
            else _NOTHING
            for held in found
        ]

    async def put(self, jid: str, number: int, preferences: Preferences) -> None:
        """Store a user's preferences for the subscription or folder with this number; 0 stands for all subscriptions.

        Preferences without any value are deleted.
        """
        key = keys.preferences(keys.user_id(jid))
        if preferences == NO_PREFERENCES:
            await self._redis.call("HDEL", key, number)
        else:
            await self._redis.call("HSET", key, number, msgspec.msgpack.encode(preferences))
