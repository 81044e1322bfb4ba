"""The end of being somebody's contact."""

import contextlib
from collections.abc import Sequence

from bots import stanzas
from bots.ids import fresh_id
from bots.link import Link, LinkLost
from service.store.keys import user_id


async def parted(link: Link, jid: str) -> None:
    """Be no contact of a person's any more: neither of us sees when the other is online. A room is no contact."""
    if jid in link.rooms:
        return
    ident = fresh_id(user_id(jid))
    await surely_sent(link, stanzas.no_contact(link.address, jid, ident, is_account=link.is_account))


async def surely_sent(link: Link, written: Sequence[str]) -> None:
    """Send stanzas in whichever session there is, or is next."""
    while True:
        await link.up.wait()
        with contextlib.suppress(LinkLost):
            await link.send(written)
            return
