"""Messages about a single entry: which messages these are, and their link previews (XEP-0511)."""

from collections.abc import Mapping, Sequence
from typing import Final

from bots.replies.formatting import title
from bots.xmpp import stanzas
from service.feeds.parsing.html_text import one_line
from service.model import Change, Channel, ChannelId, Delta, Entry
from service.users.preferences import DEFAULT_TEXT_CHARS

_MAX_SUMMARY_CHARS: Final = 300
MAX_PREVIEW_BYTES: Final = 2_048
"""Maximum size of a link preview as XML; a larger preview is left out of the message."""


def single_entry(deltas: Sequence[Delta], channels: Mapping[ChannelId, Channel]) -> tuple[Channel, Change] | None:
    """Return the channel and the last change of the only entry in ``deltas``.

    The result is None if there are several entries or none, a notice, or changed lines of a page.
    """
    changes = [
        (channels[delta.channel], change) for delta in deltas if delta.channel in channels for change in delta.changes
    ]
    if len({(channel.id, change.entry.key) for channel, change in changes}) != 1 or changes[-1][1].line:
        return None
    return None if any(delta.notice is not None for delta in deltas) else changes[-1]


def link_preview(channel: Channel, entry: Entry, text: str, text_chars: int = DEFAULT_TEXT_CHARS) -> str:
    """Return the link preview (XEP-0511) for a message about exactly one entry, as XML; "" if the message has none.

    The message has a preview if its ``text`` shows the link but not both title and summary. This happens with a user's
    own template, such as ``$link``. Without the preview, clients would have to request the linked page from the
    publisher. ``text_chars`` is the maximum length of summaries that the user has chosen.

    The standard text already contains title and summary, so a preview would only make the message larger.
    """
    link, heading = one_line(entry.link, 2000), one_line(entry.title, 300)
    if not link.startswith(("http://", "https://")) or link not in text:
        return ""
    shown = one_line(entry.summary, text_chars) if text_chars else ""
    if heading in text and shown in text:
        return ""
    summary = one_line(shown, _MAX_SUMMARY_CHARS)
    fields = {
        "title": heading,
        "description": summary if summary != heading else "",
        "site_name": title(channel),
    }
    xml = stanzas.link_metadata(link, {name: value for name, value in fields.items() if value})
    return xml if len(xml.encode()) <= MAX_PREVIEW_BYTES else ""
