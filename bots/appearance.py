"""An account's picture, name and card (XEP-0084, 0172, 0292, 0054), published where the server keeps them."""

from typing import Final
from xml.sax.saxutils import quoteattr

from bots import introduction
from bots.link import AskingLink

_PUBSUB: Final = "http://jabber.org/protocol/pubsub"


class Appearance:
    """Keeps what others see of our account as it should be; a component answers for itself."""

    def __init__(self, link: AskingLink) -> None:
        """Publish through ``link``."""
        self._link = link

    async def appear(self) -> None:
        """Publish what is not there: contacts are told of each change. Raises LinkLost."""
        for node, (ident, payload) in introduction.published().items():
            wanted = f"<pubsub xmlns='{_PUBSUB}'><items node={quoteattr(node)}><item id='{ident}'/></items></pubsub>"
            kept = await self._link.ask(self._link.address, "get", wanted)
            if not any(len(item) for item in kept.iter(f"{{{_PUBSUB}}}item")):
                await self._link.ask(self._link.address, "set", introduction.publication(node, ident, payload))
        card = await self._link.ask(self._link.address, "get", "<vCard xmlns='vcard-temp'/>")
        if not card.findtext("{vcard-temp}vCard/{vcard-temp}FN"):
            await self._link.ask(self._link.address, "set", introduction.vcard_temp())
