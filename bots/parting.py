"""The end of being somebody's contact."""

import contextlib

from bots import stanzas
from bots.ids import fresh_id
from bots.link import Link, LinkLost
from service.store.keys import user_id


async def parted(link: Link, jid: str) -> None:
    """Be no contact of a person's any more: neither of us sees when the other is online. A room is no contact."""
    if jid in link.rooms:
        return
    farewells = stanzas.no_contact(link.address, jid, fresh_id(user_id(jid)), is_account=link.is_account)
    while True:
        await link.up.wait()
        with contextlib.suppress(LinkLost):
            await link.send(farewells)
            return
