"""The base of all replies, and what messages of every kind are made of.

A reply is a value that says itself in any language: a dialogue returns it, and whoever sends it asks for its text. What
a publisher or a user wrote is put on one line, stripped of what XML 1.0 forbids and of what reverses or hides text.
"""

from typing import ClassVar, Final

import msgspec

from bots.i18n.translator import Translator, get_translator
from service.feeds.parsing.html_text import one_line
from service.feeds.urls import selector_of, without_selector
from service.model import Channel, Entry

MAX_MESSAGE_BYTES: Final = 4096

_ELLIPSIS = "…"


class Reply(msgspec.Struct, frozen=True):
    """The answer to a command: a subclass states its ``sentence``, or overrides :meth:`_text`."""

    sentence: ClassVar[str] = ""

    def text(self, language: str) -> str:
        """Return the message in this language; never empty, valid XML 1.0, at most 4 kB."""
        return clip(self._text(get_translator(language)), MAX_MESSAGE_BYTES)

    def others(self, language: str) -> tuple[str, ...]:
        """Return the messages that follow it, each valid XML 1.0 and at most 4 kB."""
        return self._others(get_translator(language))

    def _text(self, translator: Translator) -> str:
        return translator.gettext(self.sentence)

    def _others(self, _translator: Translator) -> tuple[str, ...]:
        return ()


class QuestionReply(Reply, frozen=True):
    """A reply that the next command may answer."""


class FailureReply(Reply, frozen=True):
    """A reply that says that something did not go as wanted."""


class SubscribedChannel(msgspec.Struct, frozen=True):
    """One of a person's subscriptions with its channel, whose title is what the person calls it."""

    number: int
    channel: Channel
    paused: bool = False
    muted: bool = False


def clip(text: str, longest_bytes: int) -> str:
    """Return the text cut between characters to at most ``longest_bytes`` of UTF-8."""
    encoded = text.encode()
    if len(encoded) <= longest_bytes:
        return text
    room = longest_bytes - len(_ELLIPSIS.encode())
    return encoded[:room].decode(errors="ignore").rstrip() + _ELLIPSIS


def title(channel: Channel) -> str:
    """Return what to call a channel on one line; a part of a page with its selector."""
    name = one_line(channel.title, 120) or one_line(without_selector(channel.url), 120)
    selector = one_line(selector_of(channel.url), 60)
    return f"{name} ({selector})" if selector else name


def address(channel: Channel) -> str:
    """Return a channel's URL and its selector, if it has one, as `subscribe` and `unsubscribe` take them."""
    return one_line(f"{without_selector(channel.url)} {selector_of(channel.url)}", 2500)


def entry_lines(entry: Entry, translator: Translator) -> str:
    """Return an entry's title and link on a line each."""
    lines = [part for part in (one_line(entry.title, 300), one_line(entry.link, 2000)) if part]
    return "\n".join(lines) or translator.gettext("(untitled)")


def join_lines(text: str, max_chars: int) -> str:
    """Return a block of a page on one line."""
    return one_line(" · ".join(text.splitlines()), max_chars)


def fit_rows(head: str, rows: list[str], translator: Translator, tail: str = "") -> str:
    """Return head, as many rows as fit one message, how many do not, and ``tail``."""
    ends = [tail] if tail else []
    fixed = "\n".join([head, more(len(rows), translator), *ends])
    left_bytes = MAX_MESSAGE_BYTES - len(fixed.encode())
    kept = []
    for row in rows:
        left_bytes -= len(row.encode()) + 1
        if left_bytes < 0:
            break
        kept.append(row)
    left = len(rows) - len(kept)
    return "\n".join([head, *kept, *([more(left, translator)] if left else []), *ends])


def more(count: int, translator: Translator) -> str:
    """Say how many are left out."""
    return translator.ngettext("and {count} more", "and {count} more", count)
