"""An account's message archive (XEP-0313): what the server received from us and for us, read page by page."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Iterable
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

import msgspec

from bots.xmpp import message_parser
from bots.xmpp.events import MessageReceived, Receipt
from bots.xmpp.interface import XmppClient
from bots.xmpp.stanzas import bare, data_form
from service.store.delivery.outbox import MessageId

MAM: Final = "urn:xmpp:mam:2"
RESULT: Final = f"{{{MAM}}}result"
_FORWARDED: Final = "{urn:xmpp:forward:0}forwarded"
_DELAY: Final = "{urn:xmpp:delay}delay"
_RSM: Final = "http://jabber.org/protocol/rsm"
MOST_PAGES: Final = 500
PAGE: Final = 200
_WITHIN_S: Final = 30.0


class Kept(msgspec.Struct, frozen=True):
    """What a page of the archive holds: the ids of what we sent, the receipts we got, and what people said to us."""

    sent: frozenset[MessageId]
    receipts: tuple[Receipt, ...]
    said: tuple[MessageReceived, ...]


def query(search: str, since_s: float, after: str, most: int) -> str:
    """Return what asks for at most so many messages since a moment (Unix s), beyond the one with the id ``after``."""
    start = dt.datetime.fromtimestamp(since_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    page = f"<max>{most}</max>" + (f"<after>{escape(after)}</after>" if after else "")
    form = data_form("submit", MAM, {"start": start})
    return f"<query xmlns='{MAM}' queryid={quoteattr(search)}>{form}<set xmlns='{_RSM}'>{page}</set></query>"


async def past(link: XmppClient, since_s: float) -> AsyncIterator[Kept]:
    """Return page by page what there was since a moment (Unix s); a server without an archive has none.

    Raises XmppSessionLost, and TimeoutError if a page takes too long.
    """
    after = ""
    for _ in range(MOST_PAGES):
        async with asyncio.timeout(_WITHIN_S):
            results, answer = await link.query_archive(since_s, after, PAGE)
        yield read(results, link.address)
        last = next_page(answer)
        if last is None:
            return
        after = last


def read(results: Iterable[Element], account: str) -> Kept:
    """Return what archived messages were, of the account with this bare JID."""
    sent: set[MessageId] = set()
    receipts: list[Receipt] = []
    said: list[MessageReceived] = []
    for result in results:
        message, kept = result.find(f"{_FORWARDED}/{{*}}message"), result.find(f"{_FORWARDED}/{_DELAY}")
        if message is None or kept is None:
            continue
        if bare(message.get("from", "")) == account:
            sent.add(message.get("id", ""))
            continue
        event = message_parser.read(message)
        if isinstance(event, Receipt):
            receipts.append(event)
        elif isinstance(event, MessageReceived):
            token = message_parser.archived(result.get("id", ""))
            said.append(msgspec.structs.replace(event, dedup_key=token, sent_s=message_parser.said_at_s(kept)))
    return Kept(frozenset(sent), tuple(receipts), tuple(said))


def next_page(answer: Element) -> str | None:
    """Return after which id the next page begins; None if that was the last, or there is no archive."""
    fin = answer.find(f"{{{MAM}}}fin")
    if fin is None or fin.get("complete") == "true":
        return None
    return fin.findtext(f"{{{_RSM}}}set/{{{_RSM}}}last") or None
