"""The part of the dialogue that takes subscriptions out and in, as lists (OPML). Pure."""

from collections.abc import Generator
from typing import Any

from bots import commands
from bots.asking import Followed, ImportThese, MySubscriptions, ReadList, Request
from bots.exchange import Exported, ImportBegun, Incomplete, Reply
from bots.exporting import documents
from bots.length import LONGEST_MESSAGE_BYTES
from service.feeds import opml
from service.feeds.opml import Outline, Subscribed
from service.feeds.urls import canonical_url

Part = Generator[Request, Any, Reply]


def exported() -> Part:
    """Write down what a person follows."""
    mine: tuple[Followed, ...] = yield MySubscriptions()
    feeds = [Subscribed(each.channel.url, each.channel.title[:100], page=each.channel.kind == "page") for each in mine]
    return Exported(tuple(documents(feeds, LONGEST_MESSAGE_BYTES)), len(mine))


def imported(command: commands.Import) -> Part:
    """Have a list's feeds subscribed to, one after the other. Raises CoronetError."""
    words = command.words.strip()
    if not words:
        return Incomplete("import")
    outline: Outline
    if words.startswith("<") and not words[1:].startswith(("http://", "https://")):
        outline = opml.read(words.encode("utf-8", "replace"))
    else:
        outline = yield ReadList(canonical_url(words.split(maxsplit=1)[0].strip("<>")))
    if outline.feeds:
        yield ImportThese(outline.feeds)
    return ImportBegun(len(outline.feeds), outline.problems)
