"""Link previews in messages (XEP-0511): decides which messages contain a preview, and renders it."""

from collections.abc import Mapping, Sequence
from typing import Final

from bots.replies.formatting import title
from bots.xmpp import stanzas
from service.feeds.parsing.html_text import one_line
from service.model import Channel, ChannelId, Delta

MAX_PREVIEW_BYTES: Final = 2_048
"""Maximum size of a link preview as XML; a larger preview is left out of the message."""


def link_preview(text: str, deltas: Sequence[Delta], channels: Mapping[ChannelId, Channel]) -> str:
    """Return the link preview (XEP-0511) for a message with this text, as XML; "" if the message has none.

    A message has a preview if it contains exactly one entry, and its text shows the link but not both title and
    summary. This happens with a user's own template, such as ``$link``. Without the preview, clients would have to
    request the linked page from the publisher.

    The standard text already contains title and summary, so a preview would only make the message larger.
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
