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

from bots.i18n.translator import Voice
from bots.replies.base import LONGEST_MESSAGE_BYTES, address, clip, entry_lines, joined_lines, more, title
from bots.replies.entry_templates import Template
from bots.xmpp import stanzas
from service.feeds.entries.version_parts import is_edit
from service.feeds.parsing.html_text import one_line
from service.feeds.urls import selector_of, without_selector
from service.model import Change, Channel, ChannelId, Delta, Notice

ArticleKey = tuple[ChannelId, str]
"""An entry of a channel."""

SavedSearchMatch = tuple[int, str]
"""A standing query of the person: its number, and as they would write it."""

MAX_PREVIEW_BYTES: Final = 2_048
"""Of what is longer, as written, a message goes without."""

_NOTHING: Final[Mapping[ArticleKey, Sequence[SavedSearchMatch]]] = {}
_USUAL: Final[Mapping[ChannelId, Template]] = {}
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


def render_notification(
    channels: Sequence[Channel],
    deltas: Sequence[Delta],
    gone: Mapping[ChannelId, int],
    also_in: Mapping[ArticleKey, Sequence[Channel]],
    voice: Voice,
    *,
    met: Mapping[ArticleKey, Sequence[SavedSearchMatch]] = _NOTHING,
    templates: Mapping[ChannelId, Template] = _USUAL,
) -> str:
    """Return the message that tells of these deltas, oldest first; "" if there is nothing to tell.

    ``gone`` says of how many deltas of a channel only the version is known: its log has dropped them.
    ``also_in`` names the channels that told the same article and were left out, ``met`` the standing queries for which
    an entry is told.
    Entries of channels that are in ``templates`` are written as they say, under the channel's title if they do not
    name it. Deltas of a channel that is not among ``channels`` are left out: it was removed meanwhile.
    """
    news = _by_channel(deltas, gone)
    told = [(channel, news[channel.id]) for channel in channels if channel.id in news]
    if not told:
        return ""
    share_bytes = LONGEST_MESSAGE_BYTES // len(told) - 2
    text = ""
    for brevity in _BREVITIES:
        sections = [
            _section(channel, own, also_in, met, brevity=brevity, voice=voice, template=templates.get(channel.id))
            for channel, own in told
        ]
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
    met: Mapping[ArticleKey, Sequence[SavedSearchMatch]],
    *,
    brevity: _Brevity,
    voice: Voice,
    template: Template | None,
) -> str:
    notices = [_notice(channel, notice, voice) for notice in news.notices]
    told = [_gone(news.gone, voice)] if news.gone else []
    for key, change in list(news.entries.items())[: brevity.entries]:
        article = (channel.id, key)
        lines = _entry(channel, change, brevity.summary_chars, voice, template)
        told.append(_block(change, lines, also_in.get(article, ()), met.get(article, ()), voice))
    rest = [_heading(change, voice) for change in list(news.entries.values())[brevity.entries :]]
    if rest:
        titles = _BETWEEN.join(one_line(heading, 80) for heading in rest)
        told.append(_others(len(rest), titles, voice, first=not told))
    gap = "\n\n" if brevity.summary_chars and len(told) > 1 else "\n"
    content = gap.join(told + _lines(channel, news.lines, brevity, voice))
    names_itself = template is not None and template.names_channel and not (rest or news.lines or news.gone)
    if content and not names_itself:
        content = f"*{title(channel)}*\n{content}"
    return "\n".join(notices + ([content] if content else []))


def _gone(count: int, voice: Voice) -> str:
    return voice.many(
        "No longer kept: {count} earlier update. `show` tells the latest.",
        "No longer kept: {count} earlier updates. `show` tells the latest.",
        count,
    )


def _others(count: int, titles: str, voice: Voice, *, first: bool) -> str:
    if first:
        return voice.many("{count} new: {titles}", "{count} new: {titles}", count, titles=titles)
    return voice.many("and {count} more: {titles}", "and {count} more: {titles}", count, titles=titles)


def _entry(channel: Channel, change: Change, summary_chars: int, voice: Voice, template: Template | None) -> str:
    entry = change.entry
    if template is not None:
        return template.fill(entry, title(channel), summary_chars, voice) or entry_lines(entry, voice)
    summary = one_line(entry.summary, summary_chars) if summary_chars else ""
    shown = [summary] if summary and summary != one_line(entry.title, 300) else []
    return "\n".join([entry_lines(entry, voice), *shown])


def _block(
    change: Change, lines: str, also_in: Sequence[Channel], met: Sequence[SavedSearchMatch], voice: Voice
) -> str:
    parts = [voice.say("Edited: {entry}", entry=lines) if is_edit(change) else lines]
    if also_in:
        channels = ", ".join(f"*{title(other)}*" for other in also_in[:3])
        parts.append(voice.say("also in: {channels}", channels=channels))
    if met:
        named = [f"`watch #{number}`: {one_line(words, 120)}" for number, words in met[:_MOST_MET]]
        left = [more(len(met) - _MOST_MET, voice)] if len(met) > _MOST_MET else []
        parts.append(_BETWEEN.join(named + left))
    return "\n".join(parts)


def _heading(change: Change, voice: Voice) -> str:
    entry = change.entry
    heading = entry.title.strip() or entry.link or voice.say("(untitled)")
    return voice.say("Edited: {entry}", entry=heading) if is_edit(change) else heading


def _lines(channel: Channel, changes: Sequence[Change], brevity: _Brevity, voice: Voice) -> list[str]:
    """Return what changed on a page, its address first."""
    if not changes:
        return []
    shown = [_line(change, brevity.line_chars, voice) for change in changes[: brevity.lines]]
    left = len(changes) - len(shown)
    if left and shown:
        shown.append(voice.many("and {count} more change", "and {count} more changes", left))
    elif left:
        shown.append(voice.many("{count} change", "{count} changes", left))
    return ["\n".join([one_line(without_selector(channel.url), 2000), *shown])]


def _line(change: Change, chars: int, voice: Voice) -> str:
    text, heading = joined_lines(change.entry.summary, chars), one_line(change.entry.title, 60)
    place = voice.say("line {number}", number=str(change.line))
    said = f"{_SIGNS[change.kind]} {place} ({heading}): {text}" if heading else f"{_SIGNS[change.kind]} {place}: {text}"
    if not change.before:
        return said
    was = voice.say("(was: {text})", text=joined_lines(change.before, chars))
    return f"{said} {was}"


def _notice(channel: Channel, notice: Notice, voice: Voice) -> str:
    name, detail = title(channel), one_line(notice.detail, 2000)
    daily = voice.say(
        "I look once a day and tell you when it is well again; `unsubscribe {url}` ends it.", url=address(channel)
    )
    match notice.kind:
        case "dead":
            said = voice.say("*{title}* cannot be reached any more: {detail}", title=name, detail=detail)
            return f"{said} {daily}"
        case "quarantined":
            said = voice.say("*{title}* takes more time or memory to read than I give one channel.", title=name)
            return f"{said} {daily}"
        case "back":
            return voice.say("*{title}* is back: I tell you what is new there again.", title=name)
        case "moved" if without_selector(detail) == without_selector(channel.url):
            part = selector_of(detail)
            if not part:
                return voice.say(
                    "Of *{title}* I watch the whole page from now on, and you need not do anything.", title=name
                )
            return voice.say(
                "Of *{title}* I watch another part from now on, {selector}, and you need not do anything.",
                title=name,
                selector=part,
            )
        case "moved":
            return voice.say(
                "*{title}* has moved to {url}; I watch it there from now on, and you need not do anything.",
                title=name,
                url=detail,
            )


def link_preview(text: str, deltas: Sequence[Delta], channels: Mapping[ChannelId, Channel]) -> str:
    """Return what is said of the link in a message with this text, as XML.

    "" unless it tells of exactly one entry, shows its link, and leaves out its title or summary (XEP-0511): the usual
    text has both, and a card would show them twice and cost a fan-out a fifth of its rate. In a format of one's own,
    like ``$link``, a client that shows cards has them from us, and nobody has to ask the publisher.
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
    return xml if len(xml.encode()) <= MAX_PREVIEW_BYTES else ""
