"""A client for a publish-subscribe service (XEP-0060), which may be the bot's own account (XEP-0163)."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

from bots.xmpp.interface import XmppClient
from bots.xmpp.stanzas import data_form, error_condition
from service.errors import OperationalError

REQUEST_TIMEOUT_S: Final = 30.0
_NS_PUBSUB: Final = "http://jabber.org/protocol/pubsub"


class PubsubRefused(OperationalError, code="pubsub-refused"):
    """The service responded with an error; ``condition`` is the name of the error (RFC 6120 §8.3.3)."""

    def __init__(self, condition: str) -> None:
        """Create the exception for an error whose name is ``condition``."""
        super().__init__(f"The pubsub service answers {condition}.")
        self.condition = condition


class PubsubClient:
    """Manages the nodes and items of one publish-subscribe service.

    All methods may raise :class:`PubsubRefused` if the service responds with an error, TimeoutError if it does not
    respond in time, or XmppSessionLost if the session ends.
    """

    def __init__(self, xmpp: XmppClient, service: str) -> None:
        """Create a client for the service with the JID ``service``."""
        self._xmpp = xmpp
        self._service = service

    async def create_node(self, node: str, config: Mapping[str, str]) -> None:
        """Create a node with the given configuration.

        ``config`` maps field names of the node_config form to values. The names omit the prefix "pubsub#".
        """
        form = _form("node_config", config)
        await self._request("set", f"<create node={quoteattr(node)}/><configure>{form}</configure>")

    async def configure_node(self, node: str, config: Mapping[str, str]) -> None:
        """Change the configuration of a node; ``config`` has the same form as in :meth:`create_node`."""
        form = _form("node_config", config)
        await self._request("set", f"<configure node={quoteattr(node)}>{form}</configure>", "#owner")

    async def delete_node(self, node: str) -> None:
        """Delete a node and all its items; the service notifies the subscribers."""
        await self._request("set", f"<delete node={quoteattr(node)}/>", "#owner")

    async def get_items(self, node: str, item_ids: Sequence[str]) -> dict[str, Element]:
        """Map each id in ``item_ids`` to the payload of the item with that id; leave out ids that do not exist."""
        requested = "".join(f"<item id={quoteattr(item_id)}/>" for item_id in item_ids)
        response = await self._request("get", f"<items node={quoteattr(node)}>{requested}</items>")
        return {item.get("id", ""): item[0] for item in response.iter(f"{{{_NS_PUBSUB}}}item") if len(item)}

    async def publish_item(
        self, node: str, item_id: str, payload: str, options: Mapping[str, str] | None = None
    ) -> None:
        """Publish an item, replacing any item with the same id; the service notifies the subscribers.

        ``options`` are publish options (XEP-0060 §7.1.5). They configure the node if it does not exist yet.
        """
        item = f"<item id={quoteattr(item_id)}>{payload}</item>"
        form = f"<publish-options>{_form('publish-options', options)}</publish-options>" if options else ""
        await self._request("set", f"<publish node={quoteattr(node)}>{item}</publish>{form}")

    async def retract_item(self, node: str, item_id: str) -> None:
        """Delete an item; the service notifies the subscribers."""
        item = f"<item id={quoteattr(item_id)}/>"
        await self._request("set", f"<retract node={quoteattr(node)} notify='true'>{item}</retract>")

    async def _request(self, kind: str, content: str, namespace_suffix: str = "") -> Element:
        payload = f"<pubsub xmlns='{_NS_PUBSUB}{namespace_suffix}'>{content}</pubsub>"
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            response = await self._xmpp.request(self._service, kind, payload)
        if response.get("type") == "error":
            raise PubsubRefused(error_condition(response))
        return response


def _form(kind: str, values: Mapping[str, str]) -> str:
    return data_form("submit", f"{_NS_PUBSUB}#{kind}", {f"pubsub#{name}": value for name, value in values.items()})
