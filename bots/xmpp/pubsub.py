"""Requests to a pubsub service (XEP-0060), or to our own account as one (XEP-0163)."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from bots.xmpp.interface import XmppClient
from bots.xmpp.stanzas import condition_of, data_form
from service.errors import OperationalError

ANSWERED_WITHIN_S: Final = 30.0
_PUBSUB: Final = "http://jabber.org/protocol/pubsub"


class PubsubRefused(OperationalError, code="pubsub-refused"):
    """The service does not do what it was asked; ``condition`` says why (RFC 6120 §8.3.3)."""

    def __init__(self, condition: str) -> None:
        """Keep the condition."""
        super().__init__(f"The pubsub service answers {condition}.")
        self.condition = condition


class Pubsub:
    """One service. All methods may raise :class:`PubsubRefused`, XmppSessionLost, or TimeoutError."""

    def __init__(self, link: XmppClient, service: str) -> None:
        """Ask through ``link``."""
        self._link = link
        self._service = service

    async def create(self, node: str, config: Mapping[str, str]) -> None:
        """Create a node."""
        form = _form("node_config", config)
        await self._ask("set", f"<create node={quoteattr(node)}/><configure>{form}</configure>")

    async def configure(self, node: str, config: Mapping[str, str]) -> None:
        """Change the configuration of a node."""
        form = _form("node_config", config)
        await self._ask("set", f"<configure node={quoteattr(node)}>{form}</configure>", "#owner")

    async def delete(self, node: str) -> None:
        """Delete a node with its items; its subscribers are notified."""
        await self._ask("set", f"<delete node={quoteattr(node)}/>", "#owner")

    async def items(self, node: str, idents: Sequence[str]) -> dict[str, Element]:
        """Return the payloads of those of these items that the node has, by their ids."""
        wanted = "".join(f"<item id={quoteattr(ident)}/>" for ident in idents)
        answer = await self._ask("get", f"<items node={quoteattr(node)}>{wanted}</items>")
        return {item.get("id", ""): item[0] for item in answer.iter(f"{{{_PUBSUB}}}item") if len(item)}

    async def publish(self, node: str, ident: str, payload: str, options: Mapping[str, str] | None = None) -> None:
        """Publish an item in the place of one with its id; subscribers are notified. ``options`` are for a new node."""
        item = f"<item id={quoteattr(ident)}>{payload}</item>"
        how = f"<publish-options>{_form('publish-options', options)}</publish-options>" if options else ""
        await self._ask("set", f"<publish node={quoteattr(node)}>{item}</publish>{how}")

    async def retract(self, node: str, ident: str) -> None:
        """Delete an item; subscribers are notified."""
        item = f"<item id={quoteattr(ident)}/>"
        await self._ask("set", f"<retract node={quoteattr(node)} notify='true'>{item}</retract>")

    async def _ask(self, kind: str, content: str, role: str = "") -> Element:
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            answer = await self._link.request(
                self._service, kind, f"<pubsub xmlns='{_PUBSUB}{role}'>{content}</pubsub>"
            )
        if answer.get("type") == "error":
            raise PubsubRefused(condition_of(answer))
        return answer


def _form(kind: str, values: Mapping[str, str]) -> str:
    return data_form("submit", f"{_PUBSUB}#{kind}", {f"pubsub#{name}": value for name, value in values.items()})
