"""What messages of every kind are made of."""

from bots.length import LONGEST_MESSAGE_BYTES
from bots.voice import Voice
from service.feeds.text import one_line
from service.feeds.urls import selector_of, without_selector
from service.model import Channel, Entry


def title(channel: Channel) -> str:
    """Return what to call a channel on one line; a part of a page with its selector."""
    name = one_line(channel.title, 120) or one_line(without_selector(channel.url), 120)
    selector = one_line(selector_of(channel.url), 60)
    return f"{name} ({selector})" if selector else name


def address(channel: Channel) -> str:
    """Return a channel's URL and its selector, if it has one, as `subscribe` and `unsubscribe` take them."""
    return one_line(f"{without_selector(channel.url)} {selector_of(channel.url)}", 2500)


def entry_lines(entry: Entry, voice: Voice) -> str:
    """Return an entry's title and link on a line each."""
    lines = [part for part in (one_line(entry.title, 300), one_line(entry.link, 2000)) if part]
    return "\n".join(lines) or voice.say("(untitled)")


def joined_lines(text: str, max_chars: int) -> str:
    """Return a block of a page on one line."""
    return one_line(" · ".join(text.splitlines()), max_chars)


def fitted(head: str, rows: list[str], voice: Voice, tail: str = "") -> str:
    """Return head, as many rows as fit one message, how many do not, and ``tail``."""
    ends = [tail] if tail else []
    fixed = "\n".join([head, more(len(rows), voice), *ends])
    left_bytes = LONGEST_MESSAGE_BYTES - len(fixed.encode())
    kept = []
    for row in rows:
        left_bytes -= len(row.encode()) + 1
        if left_bytes < 0:
            break
        kept.append(row)
    left = len(rows) - len(kept)
    return "\n".join([head, *kept, *([more(left, voice)] if left else []), *ends])


def more(count: int, voice: Voice) -> str:
    """Say how many are left out."""
    return voice.many("and {count} more", "and {count} more", count)
