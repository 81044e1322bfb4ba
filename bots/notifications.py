"""A batch of deltas → the text of one message. Pure.

``*Channel title*``, then each entry's title, link and at most 300 characters of text, in the
publisher's order. Up to five entries of a channel are shown so; the others by title after "and 12
more". What does not fit 4 kB is told more and more briefly, but every channel keeps its place.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from bots.length import LONGEST_MESSAGE_BYTES, clip
from bots.replies import entry_lines, many, title
from service.feeds.text import one_line
from service.model import Channel, ChannelId, Delta, Entry

_BREVITIES: Final = ((5, 300), (5, 100), (5, 0), (2, 0), (0, 0))
"""(entries of a channel shown in full, characters of text with each), from generous to terse."""

_BETWEEN = " · "


def notification(channels: Sequence[Channel], deltas: Sequence[Delta], gone: Mapping[ChannelId, int]) -> str:
    """Return the message that tells of these deltas, oldest first; "" if there is nothing to tell.

    ``gone`` says of how many deltas of a channel only the version is known: its log has dropped them.
    Deltas of a channel that is not among ``channels`` are left out: it was removed meanwhile.
    """
    news = _by_channel(deltas)
    told = [
        (channel, news.get(channel.id, ()), gone.get(channel.id, 0))
        for channel in channels
        if news.get(channel.id) or gone.get(channel.id)
    ]
    if not told:
        return ""
    share_bytes = LONGEST_MESSAGE_BYTES // len(told) - 2
    text = ""
    for entries_in_full, summary_chars in _BREVITIES:
        sections = [_section(*each, entries_in_full, summary_chars) for each in told]
        text = "\n\n".join(sections)
        if len(text.encode()) <= LONGEST_MESSAGE_BYTES:
            return text
    return "\n\n".join(clip(section, share_bytes) for section in sections)


def _by_channel(deltas: Sequence[Delta]) -> dict[ChannelId, list[Entry]]:
    """Collect what is new per channel; of an entry that changed twice, only the last state."""
    found: dict[ChannelId, dict[str, Entry]] = {}
    for delta in deltas:
        entries = found.setdefault(delta.channel, {})
        entries.update((change.entry.key, change.entry) for change in delta.changes if change.kind != "omission")
    return {cid: list(entries.values()) for cid, entries in found.items()}


def _section(channel: Channel, entries: Sequence[Entry], gone: int, entries_in_full: int, summary_chars: int) -> str:
    blocks = [f"No longer kept: {many(gone, 'earlier update')}. `show` tells the latest entries."] if gone else []
    blocks += [_block(entry, summary_chars) for entry in entries[:entries_in_full]]
    rest = entries[entries_in_full:]
    if rest:
        titles = _BETWEEN.join(one_line(entry.title, 80) or one_line(entry.link, 200) or "(untitled)" for entry in rest)
        blocks.append(f"and {len(rest)} more: {titles}" if blocks else f"{len(rest)} new: {titles}")
    gap = "\n\n" if summary_chars and len(blocks) > 1 else "\n"
    return f"*{title(channel)}*\n" + gap.join(blocks)


def _block(entry: Entry, summary_chars: int) -> str:
    summary = one_line(entry.summary, summary_chars) if summary_chars else ""
    return (
        f"{entry_lines(entry)}\n{summary}" if summary and summary != one_line(entry.title, 300) else entry_lines(entry)
    )
