"""The text of a notification: renders a batch of deltas as one message.

For a feed, the text begins with ``*Channel title*``. The entries follow in the publisher's order. Each entry is shown
with its title, its link, at most 300 characters of its summary (or as many as the user has chosen), its audio or video
file, and the saved searches that it matches. Up to five entries of a channel are shown in full, followed by "and 12
more" and the titles of the others. Edited entries are marked. In a correction, an edited entry keeps its place.

For a page, the text consists of the lines that changed: ``+`` added, ``-`` removed, ``~`` replaced.

If a text exceeds the size of one message (4 kB), it is rendered again with less and less detail until it fits. No
channel is ever left out for lack of space.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from bots.delivery.detail_levels import DETAIL_LEVELS, DetailLevel, limit_summaries
from bots.i18n.translator import Translator
from bots.replies.entry_templates import EntryTemplate
from bots.replies.formatting import (
    MAX_MESSAGE_BYTES,
    address,
    clip,
    entry_lines,
    file_line,
    join_lines,
    more_line,
    title,
)
from service.feeds.canonical_urls import SHARED, reader_of, selector_of, without_selector
from service.feeds.entries.version_parts import is_edit
from service.feeds.parsing.html_text import one_line
from service.model import Change, Channel, ChannelId, Delta, Notice
from service.users.preferences import DEFAULT_TEXT_CHARS

EntryKey = tuple[ChannelId, str]
"""A channel and the key of one of its entries."""

SavedSearchMatch = tuple[int, str]
"""A saved search that an entry matches: the number by which the user refers to it, and its query as text."""

_NO_MATCHES: Final[Mapping[EntryKey, Sequence[SavedSearchMatch]]] = {}
_NO_TEMPLATES: Final[Mapping[ChannelId, EntryTemplate]] = {}
_NO_LENGTHS: Final[Mapping[ChannelId, int]] = {}
_MAX_MATCHES = 3

_SEPARATOR = " · "
_SIGNS: Final = {"addition": "+", "omission": "-", "replacement": "~"}


class _ChannelUpdate(msgspec.Struct):
    """The changes of one channel that a notification shows.

    - ``entries``: maps each entry's key to the latest change of the entry.
    - ``lines``: the changed lines of a page.
    - ``notices``: the notices about the channel itself, for example that it has moved.
    - ``missing_count``: how many versions are no longer in the channel's log.
    """

    entries: dict[str, Change] = {}
    lines: list[Change] = []
    notices: list[Notice] = []
    missing_count: int = 0


def render_notification(
    channels: Sequence[Channel],
    deltas: Sequence[Delta],
    missing_counts: Mapping[ChannelId, int],
    also_in: Mapping[EntryKey, Sequence[Channel]],
    translator: Translator,
    *,
    matches: Mapping[EntryKey, Sequence[SavedSearchMatch]] = _NO_MATCHES,
    templates: Mapping[ChannelId, EntryTemplate] = _NO_TEMPLATES,
    text_chars: Mapping[ChannelId, int] = _NO_LENGTHS,
) -> str:
    """Return the text of a message about these deltas; "" if there is nothing to show.

    - ``channels``: the channels of the deltas. If a channel is absent because it was removed, its deltas are left out.
    - ``deltas``: the deltas, oldest first; each contains the changes in one version of a channel.
    - ``missing_counts``: for each channel, how many deltas are no longer in the channel's log.
    - ``also_in``: for an entry, the other channels whose copies of the entry were left out.
    - ``translator``: the translator into the user's language.
    - ``matches``: for an entry, the saved searches that it matches.
    - ``templates``: for a channel, the user's template for its entries.
    - ``text_chars``: for a channel, the maximum length of summaries that the user has chosen.
    """
    updates = _by_channel(deltas, missing_counts)
    shown = [(channel, updates[channel.id]) for channel in channels if channel.id in updates]
    if not shown:
        return ""
    share_bytes = MAX_MESSAGE_BYTES // len(shown) - 2
    notes = {
        entry: _notes(also_in.get(entry, ()), matches.get(entry, ()), translator)
        for entry in also_in.keys() | matches.keys()
    }
    for detail in DETAIL_LEVELS:
        sections = [
            _section(
                channel,
                update,
                notes,
                limit_summaries(detail, text_chars.get(channel.id, DEFAULT_TEXT_CHARS)),
                translator,
                template=templates.get(channel.id),
            )
            for channel, update in shown
        ]
        text = "\n\n".join(sections)
        if len(text.encode()) <= MAX_MESSAGE_BYTES:
            return text
    return "\n\n".join(clip(section, share_bytes) for section in sections)


def _by_channel(deltas: Sequence[Delta], missing_counts: Mapping[ChannelId, int]) -> dict[ChannelId, _ChannelUpdate]:
    updates = {channel_id: _ChannelUpdate(missing_count=count) for channel_id, count in missing_counts.items()}
    for delta in deltas:
        if delta.notice is None and not delta.changes:
            continue
        update = updates.setdefault(delta.channel, _ChannelUpdate())
        if delta.notice is not None:
            update.notices.append(delta.notice)
        for change in delta.changes:
            if change.line:
                update.lines.append(change)
            elif change.kind != "omission":
                update.entries[change.entry.key] = change
    return updates


def _section(
    channel: Channel,
    update: _ChannelUpdate,
    notes: Mapping[EntryKey, Sequence[str]],
    detail: DetailLevel,
    translator: Translator,
    *,
    template: EntryTemplate | None,
) -> str:
    """Return the part of the text about one channel: its notices, then its title, entries and changed lines.

    ``notes`` maps entries to the lines that are shown below them.
    """
    notices = [_notice(channel, notice, translator) for notice in update.notices]
    blocks = [_missing(update.missing_count, translator)] if update.missing_count else []
    for key, change in list(update.entries.items())[: detail.entries]:
        entry = _entry(channel, change, detail, translator, template)
        blocks.append("\n".join([entry, *notes.get((channel.id, key), ())]))
    rest = [_heading(change, translator) for change in list(update.entries.values())[detail.entries :]]
    if rest:
        titles = _SEPARATOR.join(one_line(heading, 80) for heading in rest)
        blocks.append(_others(len(rest), titles, translator, is_first=not blocks))
    gap = "\n\n" if detail.summary_chars and len(blocks) > 1 else "\n"
    content = gap.join(blocks + _changed_lines(channel, update.lines, detail, translator))
    names_itself = template is not None and template.has_channel and not (rest or update.lines or update.missing_count)
    if content and not names_itself:
        content = f"*{title(channel)}*\n{content}"
    return "\n".join(notices + ([content] if content else []))


def _missing(count: int, translator: Translator) -> str:
    return translator.ngettext(
        "{count} earlier update is no longer available. `show` has the latest entries.",
        "{count} earlier updates are no longer available. `show` has the latest entries.",
        count,
    )


def _others(count: int, titles: str, translator: Translator, *, is_first: bool) -> str:
    if is_first:
        return translator.ngettext("{count} new: {titles}", "{count} new: {titles}", count, titles=titles)
    return translator.ngettext("and {count} more: {titles}", "and {count} more: {titles}", count, titles=titles)


def _entry(
    channel: Channel, change: Change, detail: DetailLevel, translator: Translator, template: EntryTemplate | None
) -> str:
    """Return the title, link, summary and file of an entry, with a mark if the entry was edited."""
    entry = change.entry
    lines = entry_lines(entry, translator)
    if template is not None:
        lines = template.fill(entry, title(channel), detail.summary_chars, translator) or lines
    else:
        summary = one_line(entry.summary, detail.summary_chars) if detail.summary_chars else ""
        if summary and summary != one_line(entry.title, 300):
            lines = f"{lines}\n{summary}"
        if detail.has_files and entry.main_enclosure and entry.main_enclosure.is_playable:
            lines = f"{lines}\n{file_line(entry.main_enclosure, entry.link, translator)}"
    return translator.gettext("Edited: {entry}", entry=lines) if is_edit(change) else lines


def _notes(also_in: Sequence[Channel], matches: Sequence[SavedSearchMatch], translator: Translator) -> list[str]:
    """Return the notes below an entry: the other channels that have copies of it, and the searches that it matches."""
    notes = []
    if also_in:
        channels = ", ".join(f"*{title(other)}*" for other in also_in[:3])
        notes.append(translator.gettext("also in: {channels}", channels=channels))
    if matches:
        searches = [f"`watch #{number}`: {one_line(query, 120)}" for number, query in matches[:_MAX_MATCHES]]
        rest = [more_line(len(matches) - _MAX_MATCHES, translator)] if len(matches) > _MAX_MATCHES else []
        notes.append(_SEPARATOR.join(searches + rest))
    return notes


def _heading(change: Change, translator: Translator) -> str:
    entry = change.entry
    heading = entry.title.strip() or entry.link or translator.gettext("(untitled)")
    return translator.gettext("Edited: {entry}", entry=heading) if is_edit(change) else heading


def _changed_lines(
    channel: Channel, changes: Sequence[Change], detail: DetailLevel, translator: Translator
) -> list[str]:
    """Return the text about a page's changes: the address of the page, followed by its changed lines.

    The result is a list with this one text, or an empty list if there are no changes. ``detail`` limits how many
    lines are shown, and their lengths.
    """
    if not changes:
        return []
    shown = [_line(change, detail.line_chars, translator) for change in changes[: detail.lines]]
    rest = len(changes) - len(shown)
    if rest and shown:
        shown.append(translator.ngettext("and {count} more change", "and {count} more changes", rest))
    elif rest:
        shown.append(translator.ngettext("{count} change", "{count} changes", rest))
    return ["\n".join([one_line(without_selector(channel.url), 2000), *shown])]


def _line(change: Change, chars: int, translator: Translator) -> str:
    text, heading = join_lines(change.entry.summary, chars), one_line(change.entry.title, 60)
    place = translator.gettext("line {number}", number=str(change.line))
    line = f"{_SIGNS[change.kind]} {place} ({heading}): {text}" if heading else f"{_SIGNS[change.kind]} {place}: {text}"
    if not change.before:
        return line
    before = translator.gettext("(was: {text})", text=join_lines(change.before, chars))
    return f"{line} {before}"


def _notice(channel: Channel, notice: Notice, translator: Translator) -> str:  # noqa: PLR0911 - one arm per kind
    name, detail = title(channel), one_line(notice.detail, 2000)
    daily = translator.gettext(
        "I'll check it once a day and let you know when it works again; `unsubscribe {url}` ends the subscription.",
        url=address(channel),
    )
    match notice.kind:
        case "refused" if reader_of(channel.url) != SHARED:
            return translator.gettext(
                "*{title}* refused your login. {detail} To give me a new one, send `subscribe {url} login NAME "
                "PASSWORD`, or with `token`, `cookie` or `header`; `unsubscribe {url}` ends the subscription.",
                title=name,
                detail=detail,
                url=address(channel),
            )
        case "dead" | "refused":
            sentence = translator.gettext("*{title}* can't be reached any more: {detail}", title=name, detail=detail)
            return f"{sentence} {daily}"
        case "quarantined":
            sentence = translator.gettext("*{title}* has become too big or too complicated for me to read.", title=name)
            return f"{sentence} {daily}"
        case "back":
            return translator.gettext("*{title}* is back: you'll get its news again.", title=name)
        case "moved" if without_selector(detail) == without_selector(channel.url):
            part = selector_of(detail)
            if not part:
                return translator.gettext(
                    "*{title}*: I now monitor the whole page. You don't need to do anything.", title=name
                )
            return translator.gettext(
                "*{title}*: I now monitor another part of the page, {selector}. You don't need to do anything.",
                title=name,
                selector=part,
            )
        case "moved":
            return translator.gettext(
                "*{title}* has moved to {url}. I'll check it there from now on; you don't need to do anything.",
                title=name,
                url=detail,
            )


def announcement_text(texts: Sequence[str], translator: Translator) -> str:
    """Return the text of a message that contains the announcements ``texts``, written by admins, oldest first."""
    sender = translator.gettext(
        "This is an announcement from the people who run this service. `announcements off` stops them."
    )
    return "\n\n".join([*(f"📢 {text}" for text in texts), sender])
