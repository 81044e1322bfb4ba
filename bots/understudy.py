"""A house in which nothing happens: dialogues are answered from what there is, and what they would do is noted.

What it does not know to be harmless it refuses: a new request does nothing here before somebody said what it is.
"""

from typing import Any

from bots.asking import (
    AcceptInvitation,
    AddSubscription,
    AddWatch,
    AskWhy,
    CheckHealth,
    EndSubscription,
    EndWatch,
    ForgetEverything,
    ImportThese,
    LatestEntries,
    LookUp,
    MyHabits,
    MyPreferences,
    MySubscriptions,
    MyWatches,
    NodeOf,
    PausePlease,
    Probe,
    PutPreferences,
    ReadList,
    ReadListText,
    Request,
    ResumePlease,
    Search,
    SetHabits,
    Share,
    TakeNewUrl,
    ToldBy,
)
from bots.house import House
from service.discovery.standing import Standing, Watch
from service.errors import LimitReached, OperationalError
from service.feeds.urls import host_of
from service.model import Channel, ChannelId
from service.store import Store
from service.store.pauses import Resumed
from service.store.requests import Probed


class Understudy(House):
    """Serves one person's rehearsal; ``would`` is what would have been done, a sentence each."""

    def __init__(self, store: Store, house: House) -> None:
        """Read from ``store``; whom to let in, and what anybody may have, is as in the other house."""
        super().__init__(
            store,
            house.delivery,
            house.limits,
            door=house.door,
            importing=house.importing,
            uploads=house.uploads,
            lists=house.lists,
            pubsub_service=house.pubsub_service,
        )
        self.would: list[str] = []
        self._looked_at: dict[ChannelId, Channel] = {}

    async def serve(self, jid: str, request: Request) -> Any:  # noqa: C901, PLR0911, PLR0912 - one arm per request
        """Return what the request's result would be."""
        match request:
            case LookUp() | MySubscriptions() | AskWhy() | MyHabits() | Search() | MyWatches():
                return await super().serve(jid, request)
            case ReadList() | ReadListText() | MyPreferences() | ToldBy() | CheckHealth() | NodeOf():
                return await super().serve(jid, request)
            case LatestEntries(cid, count):
                return await self._store.channels.latest(cid, count)
            case TakeNewUrl():
                return True
            case Probe(url, as_page):
                return await self._looked(url, as_page=as_page)
            case AddSubscription(cid):
                return await self._subscribed(jid, cid)
            case EndSubscription(cid):
                return await self._held(jid, cid, "End the subscription to {name}.")
            case SetHabits():
                return self._noted("Keep when they want to hear from us.")
            case PutPreferences(number):
                return self._noted(f"Keep what they prefer of {f'#{number}' if number else 'everything'}.")
            case ImportThese(feeds):
                return self._noted(f"Subscribe them to {len(feeds):,} feeds of a list, one after the other.")
            case Share():
                self._noted("Send the list as a file if their server takes one, and as messages otherwise.")
                return None
            case ForgetEverything():
                self._noted("Forget everything about them but what admins have set.")
                return 0
            case PausePlease(cids, watches):
                return await self._paused(jid, cids, watches=watches)
            case ResumePlease(cids, watches):
                return await self._resumed(jid, cids, watches=watches)
            case AcceptInvitation(code):
                self._noted("Use the invitation up, if it is good.")
                return await self.door.admits(jid) or await self._store.invites.is_good(code)
            case AddWatch(standing):
                return await self._watched(jid, standing)
            case EndWatch(number):
                watch = next((each for each in await self._store.standing.of_user(jid) if each.number == number), None)
                if watch is not None:
                    self._noted(f"End what is watched for as #{number}.")
                return watch
        raise OperationalError(f"{type(request).__name__} cannot be rehearsed.")

    def _noted(self, sentence: str) -> None:
        self.would.append(sentence)

    async def _name(self, cid: ChannelId) -> str:
        channel = self._looked_at.get(cid) or await self._store.channels.get(cid)
        return (channel.title or channel.url) if channel else "a channel that is gone"

    async def _looked(self, url: str, *, as_page: bool) -> Probed:
        probed = await self._store.requests.probe(url, as_page=as_page, keep=False)
        if probed.channel is not None:
            self._looked_at[probed.channel.id] = probed.channel
            if await self._store.channels.get(probed.channel.id) is None:
                self._noted(f"Make {probed.channel.url} a channel.")
        return probed

    async def _subscribed(self, jid: str, cid: ChannelId) -> tuple[int, bool]:
        channel = self._looked_at.get(cid) or await self._store.channels.get(cid)
        await self._store.blocks.refuse(host_of(channel.url) if channel else "")
        for held in await self._store.subscriptions.of_user(jid):
            if held.channel == cid:
                return held.number, False
        self._noted(f"Subscribe them to {await self._name(cid)}.")
        return await self._store.users.next_number(jid, "numbers"), True

    async def _held(self, jid: str, cid: ChannelId, sentence: str) -> bool:
        held = any(each.channel == cid for each in await self._store.subscriptions.of_user(jid))
        if held:
            self._noted(sentence.format(name=await self._name(cid)))
        return held

    async def _paused(self, jid: str, cids: tuple[ChannelId, ...], *, watches: bool) -> list[ChannelId]:
        mine = await self._store.subscriptions.of_user(jid)
        awake = [each.channel for each in mine if each.channel in cids and each.paused_version is None]
        self._noted(f"Pause {len(awake):,} subscriptions{', and what they watch for' if watches else ''}.")
        return awake

    async def _resumed(self, jid: str, cids: tuple[ChannelId, ...], *, watches: bool) -> Resumed:
        mine = [each for each in await self._store.subscriptions.of_user(jid) if each.channel in cids]
        paused = {each.channel: each.paused_version for each in mine if each.paused_version is not None}
        channels = await self._store.channels.many(list(paused))
        withheld = {each.id: max(0, each.version - paused[each.id]) for each in channels if each is not None}
        self._noted(f"Resume {len(paused):,} subscriptions{', and what they watch for' if watches else ''}.")
        return Resumed(withheld)

    async def _watched(self, jid: str, standing: Standing) -> Watch:
        mine = await self._store.standing.of_user(jid)
        for held in mine:
            if held.standing == standing:
                return held
        if len(mine) >= self.limits.watches:
            raise LimitReached(
                "You watch for {most} things already, the most one person can. `unwatch #n` makes room.",
                most=self.limits.watches,
            )
        self._noted("Watch for that from now on.")
        return Watch("", standing, await self._store.users.next_number(jid, "watches"))
