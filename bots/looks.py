"""How people want channels to look in what they are told: what they call them, and how entries are written."""

from collections.abc import Mapping, Sequence

import msgspec

from bots.templates import Template
from service.model import ChannelId, UserId
from service.preferences import NONE, ByNumber, template
from service.store.outbox import Batch
from service.store.subscriptions import Subscriptions


class Look(msgspec.Struct, frozen=True):
    """One channel: a title of the person's own or "", and a template if it is not to look as usual."""

    title: str = ""
    template: Template | None = None


Looks = Mapping[ChannelId, Look]
"""Of channels that do not look as usual."""

USUAL: Looks = {}


async def looks_of(
    subscriptions: Subscriptions, uid: UserId, batches: Sequence[Batch], preferences: ByNumber, zone: str
) -> Looks:
    """Return how the channels in a person's batches look to them. Raises StoreUnavailable."""
    if not any(each.title or each.template for each in preferences.values()):
        return USUAL
    cids = list(dict.fromkeys(item.channel for batch in batches for item in batch.items))
    numbers = await subscriptions.numbers([(uid, cid) for cid in cids])
    looks = {}
    for cid, number in zip(cids, numbers, strict=True):
        if number is not None:
            text = template(preferences, number)
            looks[cid] = Look(preferences.get(number, NONE).title, Template(text, zone) if text else None)
    return {cid: look for cid, look in looks.items() if look != Look()}
