"""Formatting of titles, addresses, entries and lists in the text of messages.

Text from publishers and users is put on one line. Characters that XML 1.0 forbids, and characters that reverse or hide
text, are removed from it.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from bots.i18n.translator import Translator
from service.feeds.canonical_urls import selector_of, without_selector
from service.feeds.parsing.html_text import one_line
from service.model import Channel, Enclosure, Entry

MAX_MESSAGE_BYTES: Final = 4096

_ELLIPSIS = "…"
_MIN_SIZE_BYTES: Final = 1_000
_NOT_IN_HASHTAG = re.compile(r"\W+")


class SubscribedChannel(msgspec.Struct, frozen=True):
    """A subscription of the user together with its channel.

    If the user has chosen a title for the channel, it replaces the title in ``channel``. ``folder`` is the name of the
    folder that the subscription is in, or "".
    """

    number: int
    channel: Channel
    paused: bool = False
    muted: bool = False
    folder: str = ""

    @property
    def placeholders(self) -> dict[str, str]:
        """The values for the placeholders ``{title}`` and ``{number}`` in sentences about the subscription."""
        return {"title": title(self.channel), "number": str(self.number)}


class Folder(msgspec.Struct, frozen=True):
    """A folder of the user with its subscriptions."""

    name: str
    subscriptions: tuple[SubscribedChannel, ...]


Target = SubscribedChannel | Folder | None
"""What a setting or filter applies to: a subscription, a folder, or all subscriptions (None)."""


def clip(text: str, max_bytes: int) -> str:
    """Shorten the text to at most ``max_bytes`` bytes of UTF-8, without splitting a character.

    A shortened text ends with an ellipsis.
    """
    encoded = text.encode()
    if len(encoded) <= max_bytes:
        return text
    kept_bytes = max_bytes - len(_ELLIPSIS.encode())
    return encoded[:kept_bytes].decode(errors="ignore").rstrip() + _ELLIPSIS


def title(channel: Channel) -> str:
    """Return the title of a channel on one line, or its URL if it has no title.

    If the channel monitors a part of a page, the selector of the part is added.
    """
    name = one_line(channel.title, 120) or one_line(without_selector(channel.url), 120)
    selector = one_line(selector_of(channel.url), 60)
    return f"{name} ({selector})" if selector else name


def address(channel: Channel) -> str:
    """Return a channel's URL, followed by its selector if the channel monitors a part of a page.

    The commands `subscribe` and `unsubscribe` accept the result as an argument.
    """
    return one_line(f"{without_selector(channel.url)} {selector_of(channel.url)}", 2500)


def entry_lines(entry: Entry, translator: Translator) -> str:
    """Return the title and the link of an entry, each on its own line."""
    lines = [part for part in (one_line(entry.title, 300), one_line(entry.link, 2000)) if part]
    return "\n".join(lines) or translator.gettext("(untitled)")


def file_line(enclosure: Enclosure, link: str, translator: Translator) -> str:
    """Return a line about an audio or video file: its title or kind, size, duration and URL.

    The URL is left out if it is the entry's ``link``, which is shown anyway.
    """
    kind = translator.gettext("Video") if enclosure.kind == "video" else translator.gettext("Audio")
    # Publishers who do not know the size often state 1 or another small number.
    size = translator.format_size(enclosure.size_bytes) if enclosure.size_bytes >= _MIN_SIZE_BYTES else ""
    (hours, minutes), seconds = divmod(enclosure.duration_s // 60, 60), enclosure.duration_s % 60
    clock = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
    url = one_line(enclosure.url, 2000) if enclosure.url != link else ""
    parts = (one_line(enclosure.title, 100) or kind, size, clock if enclosure.duration_s else "", url)
    return "▶ " + " · ".join(filter(None, parts))


def hashtags(tags: Sequence[str]) -> str:
    """Return the tags of an entry as hashtags, for example ``#python #open_source``."""
    names = (_NOT_IN_HASHTAG.sub("_", one_line(tag, 60)).strip("_") for tag in tags)
    return " ".join(dict.fromkeys(f"#{name}" for name in names if name))


def join_lines(text: str, max_chars: int) -> str:
    """Join the lines of ``text`` with " · " into one line of at most ``max_chars`` characters."""
    return one_line(" · ".join(text.splitlines()), max_chars)


def fit_rows(head: str, rows: list[str], translator: Translator, tail: str = "") -> str:
    """Return ``head``, as many of ``rows`` as fit into one message, and ``tail``, each on its own line.

    If rows are left out, a line before ``tail`` states how many.
    """
    ends = [tail] if tail else []
    fixed = "\n".join([head, more_line(len(rows), translator), *ends])
    left_bytes = MAX_MESSAGE_BYTES - len(fixed.encode())
    kept = []
    for row in rows:
        left_bytes -= len(row.encode()) + 1
        if left_bytes < 0:
            break
        kept.append(row)
    left = len(rows) - len(kept)
    return "\n".join([head, *kept, *([more_line(left, translator)] if left else []), *ends])


def more_line(count: int, translator: Translator) -> str:
    """Return the line that states that ``count`` more rows were left out."""
    return translator.ngettext("and {count} more", "and {count} more", count)
