"""The part of the dialogue that takes subscriptions out and in, as lists (OPML). Pure.

A list goes out as a file if it is too long for one message and the XMPP server takes files, else as messages.
"""

from collections.abc import Generator
from typing import Any, Final

from bots import commands
from bots.asking import (
    Followed,
    ImportThese,
    Limits,
    MySubscriptions,
    ReadList,
    ReadListText,
    Request,
    Share,
    TakeNewUrl,
)
from bots.exchange import Exported, ExportedAsFile, ImportBegun, Incomplete, NewUrlsUsedUp, Reply
from bots.exporting import documents, whole
from bots.length import LONGEST_MESSAGE_BYTES
from service.errors import UploadRefused
from service.feeds.opml import Outline, Subscribed
from service.feeds.urls import canonical_url

Part = Generator[Request, Any, Reply]

_FILE: Final = ("subscriptions.opml", "text/x-opml")


def exported() -> Part:
    """Write down what a person follows."""
    mine: tuple[Followed, ...] = yield MySubscriptions()
    feeds = [Subscribed(each.channel.url, each.channel.title[:100], page=each.channel.kind == "page") for each in mine]
    parts, refused = tuple(documents(feeds, LONGEST_MESSAGE_BYTES)), None
    if len(parts) > 1:
        name, media_type = _FILE
        try:
            url: str | None = yield Share(name, whole(feeds), media_type)
        except UploadRefused as error:
            refused = error
        else:
            if url is not None:
                return ExportedAsFile(url, len(mine))
    return Exported(parts, len(mine), refused)


def imported(command: commands.Import, limits: Limits) -> Part:
    """Have a list's feeds subscribed to, one after the other; its URL counts as a new one. Raises CoronetError."""
    words = command.words.strip()
    if not words:
        return Incomplete("import")
    if words.startswith("<") and not words[1:].startswith(("http://", "https://")):
        return (yield from _begun((yield ReadListText(words))))
    url = canonical_url(words.split(maxsplit=1)[0].strip("<>"))
    if not (yield TakeNewUrl()):
        return NewUrlsUsedUp(limits.new_urls_per_hour)
    return (yield from imported_from(url))


def imported_from(url: str) -> Part:
    """Have the feeds subscribed to that the list at a canonical URL names. Raises CoronetError."""
    return (yield from _begun((yield ReadList(url))))


def _begun(outline: Outline) -> Part:
    if outline.feeds:
        yield ImportThese(outline.feeds)
    return ImportBegun(len(outline.feeds), outline.problems)
