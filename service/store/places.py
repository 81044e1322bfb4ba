"""Which publisher a channel is of, as its subscriptions are placed: decided once for each channel, and kept with it.

The list of public suffixes changes, and with it what a registrable domain is; where subscriptions lie must not.
"""

from collections.abc import Sequence
from sys import intern

from service.feeds.urls import host_of
from service.model import ChannelId
from service.net.sites import site_of
from service.store import keys
from service.store.link import script
from service.store.together import Together

_MOST_KNOWN = 10_000


class Places:
    """The sites of channels, from memory where they were asked for before."""

    def __init__(self, link: Together) -> None:
        """Use this link to Redis."""
        self._link = link
        self._known: dict[ChannelId, str] = {}

    async def sites(self, cids: Sequence[ChannelId]) -> list[str | None]:
        """Return each channel's site, in order; None if there is no such channel."""
        found = {cid: self._known[cid] for cid in cids if cid in self._known}
        unknown = [cid for cid in dict.fromkeys(cids) if cid not in found]
        if unknown:
            found |= await self._asked(unknown)
            self._known |= {cid: intern(site) for cid, site in found.items()}
            while len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]
        return [found.get(cid) for cid in cids]

    async def _asked(self, cids: Sequence[ChannelId]) -> dict[ChannelId, str]:
        replies = await self._link.many([("HMGET", keys.channel(cid), "site", "url") for cid in cids])
        held = dict(zip(cids, replies, strict=True))
        found = {cid: site.decode() for cid, (site, _) in held.items() if site}
        new = {cid: site_of(host_of(url.decode())) for cid, (site, url) in held.items() if url and not site}
        decided = await self._link.many(
            [script("channel_site", (keys.channel(cid),), site) for cid, site in new.items()]
        )
        return found | {cid: site.decode() for cid, site in zip(new, decided, strict=True) if site}
