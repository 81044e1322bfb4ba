"""Link previews of messages (XEP-0511): which messages have one, and its content."""

from collections.abc import Mapping, Sequence
from typing import Final

from bots.replies.formatting import title
from bots.xmpp import stanzas
from service.feeds.parsing.html_text import one_line
from service.model import Channel, ChannelId, Delta

MAX_PREVIEW_BYTES: Final = 2_048
"""Maximum size of a link preview as XML; a larger preview is left out of the message."""


def link_preview(text: str, deltas: Sequence[Delta], channels: Mapping[ChannelId, Channel]) -> str:
    """Return the link preview (XEP-0511) of a message with this text, as XML; "" if it has none.

    A message has a preview if it contains exactly one entry, shows its link, and omits its title or summary. The
    standard text contains both; a preview would show them twice and reduce the rate of a fan-out by a fifth. With a
    user's own template, like ``$link``, clients get the preview from the message, so they need not request it from the
    publisher.
    """
    changes = [(delta.channel, change) for delta in deltas if delta.channel in channels for change in delta.changes]
    entries = {(channel_id, change.entry.key): (channel_id, change) for channel_id, change in changes}
    if len(entries) != 1 or any(delta.notice is not None for delta in deltas):
        return ""
    ((channel_id, change),) = entries.values()
    link, heading = one_line(change.entry.link, 2000), one_line(change.entry.title, 300)
    summary = one_line(change.entry.summary, 300)
    if change.line or not link.startswith(("http://", "https://")) or link not in text:
        return ""
    if heading in text and summary in text:
        return ""
    fields = {
        "title": heading,
        "description": summary if summary != heading else "",
        "site_name": title(channels[channel_id]),
    }
    xml = stanzas.link_metadata(link, {name: value for name, value in fields.items() if value})
    return xml if len(xml.encode()) <= MAX_PREVIEW_BYTES else ""
