"""What a message of one entry says of its link (XEP-0511) beside the text, where that leaves something out. Pure.

The usual text has title and summary: a card would show them twice, and cost a fan-out a fifth of its rate. In a format
of one's own, like ``$link``, a client that shows cards has them from us, and nobody has to ask the publisher.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from bots import stanzas
from bots.replies.parts import title
from service.feeds.text import one_line
from service.model import Channel, ChannelId, Delta

MOST_BYTES: Final = 2_048
"""Of what is longer, as written, a message goes without."""


def link_preview(text: str, deltas: Sequence[Delta], channels: Mapping[ChannelId, Channel]) -> str:
    """Return what is said of the link in a message with this text, as XML.

    "" unless it tells of exactly one entry, shows its link, and leaves out its title or summary.
    """
    changes = [(delta.channel, change) for delta in deltas if delta.channel in channels for change in delta.changes]
    entries = {(cid, change.entry.key): (cid, change) for cid, change in changes}
    if len(entries) != 1 or any(delta.notice is not None for delta in deltas):
        return ""
    ((cid, change),) = entries.values()
    link, heading = one_line(change.entry.link, 2000), one_line(change.entry.title, 300)
    summary = one_line(change.entry.summary, 300)
    if change.line or not link.startswith(("http://", "https://")) or link not in text:
        return ""
    if heading in text and summary in text:
        return ""
    told = {"title": heading, "description": summary if summary != heading else "", "site_name": title(channels[cid])}
    xml = stanzas.link_metadata(link, {name: value for name, value in told.items() if value})
    return xml if len(xml.encode()) <= MOST_BYTES else ""
