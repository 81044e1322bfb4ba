"""Reads the message archive of the bot's account (XEP-0313), page by page."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Iterable
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

import msgspec

from bots.xmpp import deduplication, message_parser
from bots.xmpp.events import MessageReceived, Receipt
from bots.xmpp.interface import XmppClient
from bots.xmpp.stanzas import bare_jid, data_form
from service.store.delivery.outbox import MessageId

NS_MAM: Final = "urn:xmpp:mam:2"
RESULT: Final = f"{{{NS_MAM}}}result"
MAX_PAGES: Final = 500
PAGE_SIZE: Final = 200
_NS_RSM: Final = "http://jabber.org/protocol/rsm"
_FORWARDED: Final = "{urn:xmpp:forward:0}forwarded"
_DELAY: Final = "{urn:xmpp:delay}delay"
_PAGE_TIMEOUT_S: Final = 30.0


class ArchivePage(msgspec.Struct, frozen=True):
    """Users' messages, their receipts, and the ids of the bot's messages on one page of its archive (XEP-0313)."""

    sent_ids: frozenset[MessageId]
    """Ids of the messages on the page that the bot sent."""
    receipts: tuple[Receipt, ...]
    """Receipts on the page that users sent."""
    messages: tuple[MessageReceived, ...]
    """Messages on the page that users sent."""


def query_payload(query_id: str, since_s: float, after_id: str, limit: int) -> str:
    """Return the payload of a request for one page of the account's message archive (XEP-0313).

    - ``query_id``: an id that the server repeats in each result, so that results can be matched to the request.
    - ``since_s``: the time at which the page begins (Unix seconds), if ``after_id`` is "".
    - ``after_id``: the archive id of the message after which the page begins, or "".
    - ``limit``: the maximum number of messages on the page.
    """
    start = dt.datetime.fromtimestamp(since_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    page = f"<max>{limit}</max>" + (f"<after>{escape(after_id)}</after>" if after_id else "")
    form = data_form("submit", NS_MAM, {"start": start})
    return f"<query xmlns='{NS_MAM}' queryid={quoteattr(query_id)}>{form}<set xmlns='{_NS_RSM}'>{page}</set></query>"


async def read_archive(xmpp: XmppClient, since_s: float) -> AsyncIterator[ArchivePage]:
    """Yield the pages of the archive since ``since_s`` (Unix seconds), oldest first.

    If the server has no archive, one empty page is yielded. Raises XmppSessionLost if the session ends, and
    TimeoutError if the server takes too long to send a page.
    """
    after_id = ""
    for _ in range(MAX_PAGES):
        async with asyncio.timeout(_PAGE_TIMEOUT_S):
            results, response = await xmpp.query_archive(since_s, after_id, PAGE_SIZE)
        yield parse_page(results, xmpp.address)
        next_id = next_page_id(response)
        if next_id is None:
            return
        after_id = next_id


def parse_page(results: Iterable[Element], account: str) -> ArchivePage:
    """Parse the result elements of one page of the archive; ``account`` is the bare JID of the bot's account."""
    sent_ids: set[MessageId] = set()
    receipts: list[Receipt] = []
    messages: list[MessageReceived] = []
    for result in results:
        message, stamp = result.find(f"{_FORWARDED}/{{*}}message"), result.find(f"{_FORWARDED}/{_DELAY}")
        if message is None or stamp is None:
            continue
        if bare_jid(message.get("from", "")) == account:
            sent_ids.add(message.get("id", ""))
            continue
        event = message_parser.parse_message(message)
        if isinstance(event, Receipt):
            receipts.append(event)
        elif isinstance(event, MessageReceived) and not event.is_groupchat:
            dedup_key = deduplication.archive_dedup_key(result.get("id", ""))
            sent_s = deduplication.delay_stamp_s(stamp)
            messages.append(msgspec.structs.replace(event, dedup_key=dedup_key, sent_s=sent_s))
    return ArchivePage(frozenset(sent_ids), tuple(receipts), tuple(messages))


def next_page_id(response: Element) -> str | None:
    """Return the archive id after which the next page begins; None if there is no next page, or no archive.

    ``response`` is the response with which the server ended the current page.
    """
    fin = response.find(f"{{{NS_MAM}}}fin")
    if fin is None or fin.get("complete") == "true":
        return None
    return fin.findtext(f"{{{_NS_RSM}}}set/{{{_NS_RSM}}}last") or None
