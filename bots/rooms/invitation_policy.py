"""The policy on invitations to rooms: quotas, limits on how many rooms the bot joins, and trust in the inviter.

Each invitation counts towards the quota of its actual sender, because the invitation may name a false inviter. What a
room says about the identity of the inviter is trusted only if the room is on a service of the inviter's own server
(ADR 46).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from bots.xmpp.events import RoomInvitation
from service.model import UserId
from service.net.sites_and_networks import site_of, site_of_jid
from service.store import Store
from service.store.client.keys import user_id

MAX_INVITATIONS_PER_HOUR: Final = 10
"""Maximum number of invitations per hour from one address, which may be a user or a room."""
MAX_INVITATIONS_PER_HOUR_PER_SITE: Final = 100

_INVITATION_WINDOW_S: Final = 3_600.0

_MAX_QUEUED_PER_SITE: Final = 100
_MAX_QUEUED: Final = 1_000

MAX_ROOMS: Final = 1_000
MAX_ROOMS_PER_SITE: Final = 500
"""Maximum number of rooms on the servers of one site (registrable domain). It is also the maximum number of rooms to
which the users of one site can invite the bot."""
MAX_ROOMS_PER_INVITER: Final = 50


class InvitationQuotas:
    """Limits how many invitations one bot handles per hour from each sender and site, and how many are queued."""

    def __init__(self, store: Store) -> None:
        """Create quotas with hourly counters in ``store`` and an empty queue."""
        self._users = store.users
        self._queued: Counter[str] = Counter()
        """Maps each site to the number of queued invitations from its senders. Invitations in the store are not
        counted."""

    def try_queue(self, sender: str) -> bool:
        """Count an invitation that is added to the queue; return False if the invitation must be dropped instead.

        It must be dropped if too many invitations are waiting in total, or from the site of ``sender``.
        """
        site = site_of_jid(sender)
        if self._queued.total() >= _MAX_QUEUED or self._queued[site] >= _MAX_QUEUED_PER_SITE:
            return False
        self._queued[site] += 1
        return True

    def on_handled(self, sender: str) -> None:
        """Record that an invitation counted by :meth:`try_queue` is no longer in the queue."""
        self._queued[site_of_jid(sender)] -= 1
        self._queued = +self._queued

    async def must_ignore(self, sender: str, invitation: RoomInvitation) -> bool:
        """Count an invitation from ``sender``; return whether it must be ignored.

        It must be ignored if ``sender`` or the sender's site has exceeded its quota, or if the sender, the room or the
        inviter is suspended or on a blocked domain.
        """
        if not await self.count(sender):
            return True
        site_key = f"@{site_of_jid(sender)}"  # not the JID of any user
        if not await self._count(site_key, MAX_INVITATIONS_PER_HOUR_PER_SITE):
            return True
        involved = {sender, invitation.room, invitation.inviter}
        if await self._users.jids_of_blocked_domains(list(involved)):
            return True
        return await self.is_any_suspended(map(user_id, involved))

    async def count(self, jid: str) -> bool:
        """Count an invitation from the address ``jid``; return whether the address is within its hourly quota."""
        return await self._count(jid, MAX_INVITATIONS_PER_HOUR)

    async def is_any_suspended(self, user_ids: Iterable[UserId]) -> bool:
        """Return whether at least one of these users is suspended.

        The id "" stands for an unknown user, and is ignored.
        """
        return bool(await self._users.suspended_users(set(user_ids) - {""}))

    async def _count(self, key: str, max_per_hour: int) -> bool:
        return await self._users.count_use(key, "invitation", max_per_hour, _INVITATION_WINDOW_S)


def has_space(room: str, inviter: str, inviters: Mapping[str, str]) -> bool:
    """Return whether the bot may accept one more room.

    ``room`` is the address of the new room, and ``inviter`` the user who has invited the bot. ``inviters`` maps each of
    the bot's rooms to its inviter, or to "" if the inviter is unknown. The number of rooms is limited in total, per
    site that hosts rooms, per inviter, and per site of inviters.
    """
    if len(inviters) >= MAX_ROOMS:
        return False
    room_site, inviter_site = site_of_jid(room), site_of_jid(inviter)
    room_count = sum(site_of_jid(other) == room_site for other in inviters)
    known = [other for other in inviters.values() if inviter and other]
    inviter_count = sum(site_of_jid(other) == inviter_site for other in known)
    return max(room_count, inviter_count) < MAX_ROOMS_PER_SITE and known.count(inviter) < MAX_ROOMS_PER_INVITER


def can_vouch(room: str, jid: str) -> bool:
    """Return whether to trust what a room says about the identity of the user with the bare JID ``jid``.

    A room is trusted if it is on a service of the user's own server:

    - The service's domain is a subdomain of the server's domain.
    - Both domains belong to the same site (registrable domain). This is not required if the server's domain has no
      dot.

    The second condition protects a server whose domain is a public suffix. Anybody can register a domain below such a
    suffix, and could otherwise vouch for the server's users.
    """
    service, server = room.rpartition("@")[2], jid.rpartition("@")[2]
    return service.endswith(f".{server}") and ("." not in server or site_of(service) == site_of(server))
