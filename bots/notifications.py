"""A batch of deltas → the text of one message. Pure.

Of a feed: ``*Channel title*``, then each entry's title, link and at most 300 characters of text, in the publisher's
order; below it the standing queries for which it is told, if it is for those. Up to five entries of a channel are shown
so; the others by title after "and 12 more". An edited entry says so and stands where it stood, if the batch tells it
anew. Of a page: the lines that changed, ``+`` new, ``-`` gone, ``~`` with other words. What does not fit 4 kB is told
more and more briefly, but every channel keeps its place.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from bots.length import LONGEST_MESSAGE_BYTES, clip
from bots.replies.parts import address, entry_lines, joined_lines, title
from bots.voice import voice
from service.feeds.parts import is_edit
from service.feeds.text import one_line
from service.feeds.urls import without_selector
from service.model import Change, Channel, ChannelId, Delta, Notice

ArticleKey = tuple[ChannelId, str]
"""An entry of a channel."""

MetBy = tuple[int, str]
"""A standing query of the person: its number, and as they would write it."""

_NOTHING: Final[Mapping[ArticleKey, Sequence[MetBy]]] = {}
_MOST_MET = 3

_BETWEEN = " · "
_SIGNS: Final = {"addition": "+", "omission": "-", "replacement": "~"}


class _Brevity(msgspec.Struct, frozen=True):
    """How much of a channel is shown: entries in full, characters of text with each; lines of a page, their length."""

    entries: int
    summary_chars: int
    lines: int
    line_chars: int


_BREVITIES: Final = (
    _Brevity(5, 300, 12, 300),
    _Brevity(5, 100, 8, 150),
    _Brevity(5, 0, 5, 80),
    _Brevity(2, 0, 2, 80),
    _Brevity(0, 0, 0, 0),
)
"""From generous to terse."""


class _News(msgspec.Struct):
    """What there is to tell of one channel; of an entry that changed twice, only the last state."""

    entries: dict[str, Change] = {}
    lines: list[Change] = []
    notices: list[Notice] = []
    gone: int = 0


def notification(
    channels: Sequence[Channel],
    deltas: Sequence[Delta],
    gone: Mapping[ChannelId, int],
    also_in: Mapping[ArticleKey, Sequence[Channel]],
    met: Mapping[ArticleKey, Sequence[MetBy]] = _NOTHING,
) -> str:
    """Return the message that tells of these deltas, oldest first; "" if there is nothing to tell.

    ``gone`` says of how many deltas of a channel only the version is known: its log has dropped them.
    ``also_in`` names the channels that told the same article and were left out, ``met`` the standing queries for which
    an entry is told.
    Deltas of a channel that is not among ``channels`` are left out: it was removed meanwhile.
    """
    news = _by_channel(deltas, gone)
    told = [(channel, news[channel.id]) for channel in channels if channel.id in news]
    if not told:
        return ""
    share_bytes = LONGEST_MESSAGE_BYTES // len(told) - 2
    text = ""
    for brevity in _BREVITIES:
        sections = [_section(channel, own, also_in, met, brevity) for channel, own in told]
        text = "\n\n".join(sections)
        if len(text.encode()) <= LONGEST_MESSAGE_BYTES:
            return text
    return "\n\n".join(clip(section, share_bytes) for section in sections)


def _by_channel(deltas: Sequence[Delta], gone: Mapping[ChannelId, int]) -> dict[ChannelId, _News]:
    found = {cid: _News(gone=count) for cid, count in gone.items()}
    for delta in deltas:
        if delta.notice is None and not delta.changes:
            continue
        own = found.setdefault(delta.channel, _News())
        if delta.notice is not None:
            own.notices.append(delta.notice)
        for change in delta.changes:
            if change.line:
                own.lines.append(change)
            elif change.kind != "omission":
                own.entries[change.entry.key] = change
    return found


def _section(
    channel: Channel,
    news: _News,
    also_in: Mapping[ArticleKey, Sequence[Channel]],
    met: Mapping[ArticleKey, Sequence[MetBy]],
    brevity: _Brevity,
) -> str:
    notices = [_notice(channel, notice) for notice in news.notices]
    told = [f"No longer kept: {many(news.gone, 'earlier update')}. `show` tells the latest."] if news.gone else []
    told += [
        _block(change, also_in.get((channel.id, key), ()), met.get((channel.id, key), ()), brevity.summary_chars)
        for key, change in list(news.entries.items())[: brevity.entries]
    ]
    rest = [_heading(change) for change in list(news.entries.values())[brevity.entries :]]
    if rest:
        titles = _BETWEEN.join(one_line(heading, 80) for heading in rest)
        told.append(f"and {len(rest)} more: {titles}" if told else f"{len(rest)} new: {titles}")
    gap = "\n\n" if brevity.summary_chars and len(told) > 1 else "\n"
    content = gap.join(told + _lines(channel, news.lines, brevity))
    return "\n".join(notices + ([f"*{title(channel)}*\n{content}"] if content else []))


def _block(change: Change, also_in: Sequence[Channel], met: Sequence[MetBy], summary_chars: int) -> str:
    entry = change.entry
    summary = one_line(entry.summary, summary_chars) if summary_chars else ""
    parts = [("Edited: " if is_edit(change) else "") + entry_lines(entry, voice("en"))]
    if summary and summary != one_line(entry.title, 300):
        parts.append(summary)
    if also_in:
        parts.append("also in: " + ", ".join(f"*{title(other)}*" for other in also_in[:3]))
    if met:
        named = [f"`watch #{number}`: {one_line(words, 120)}" for number, words in met[:_MOST_MET]]
        left = [f"and {len(met) - _MOST_MET} more"] if len(met) > _MOST_MET else []
        parts.append(_BETWEEN.join(named + left))
    return "\n".join(parts)


def _heading(change: Change) -> str:
    entry = change.entry
    return ("Edited: " if is_edit(change) else "") + (entry.title.strip() or entry.link or "(untitled)")


def _lines(channel: Channel, changes: Sequence[Change], brevity: _Brevity) -> list[str]:
    """Return what changed on a page, its address first."""
    if not changes:
        return []
    shown = [_line(change, brevity.line_chars) for change in changes[: brevity.lines]]
    left = len(changes) - len(shown)
    if left:
        shown.append(f"and {many(left, 'more change')}" if shown else many(left, "change"))
    return ["\n".join([one_line(without_selector(channel.url), 2000), *shown])]


def _line(change: Change, chars: int) -> str:
    heading = one_line(change.entry.title, 60)
    place = f"line {change.line}" + (f" ({heading})" if heading else "")
    was = f" (was: {joined_lines(change.before, chars)})" if change.before else ""
    return f"{_SIGNS[change.kind]} {place}: {joined_lines(change.entry.summary, chars)}{was}"


def _notice(channel: Channel, notice: Notice) -> str:
    name, detail = f"*{title(channel)}*", one_line(notice.detail, 2000)
    daily = f"I look once a day and tell you when it is well again; `unsubscribe {address(channel)}` ends it."
    match notice.kind:
        case "dead":
            return f"{name} cannot be reached any more: {detail} {daily}"
        case "quarantined":
            return f"{name} takes more time or memory to read than I give one channel. {daily}"
        case "back":
            return f"{name} is back: I tell you what is new there again."
        case "moved":
            return f"{name} has moved to {detail}; I watch it there from now on, and you need not do anything."


def many(count: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"
