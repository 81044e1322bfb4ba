"""The content of messages: renders batches of outbox items, reading the changes from the channels' logs.

Users can choose their own titles and templates (their *presentation* of a channel). A body is rendered once per
language and presentation, however many users receive it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from cachetools import FIFOCache

from bots.delivery.link_preview import link_preview, single_entry
from bots.delivery.notification_text import EntryKey, SavedSearchMatch, announcement_text, render_notification
from bots.i18n.translator import Translator, get_translator
from bots.replies.entry_templates import EntryTemplate
from bots.xmpp import stanzas
from service.feeds.entries.duplicate_articles import article_hashes
from service.feeds.entries.version_parts import is_edit, select_part
from service.model import Change, ChannelId, Delta, Entry, UserId
from service.store import Store
from service.store.channels.channels import Channels
from service.store.delivery.outbox import ANNOUNCEMENTS, Batch, OutboxItem
from service.users.preferences import (
    DEFAULT_TEXT_CHARS,
    FULL_TEXT,
    NO_PREFERENCES,
    PreferencesByNumber,
    are_images_enabled,
    effective_template,
    effective_text_chars,
)

MAX_CACHED_BODIES: Final = 512
"""Maximum number of cached bodies, each of at most about 4 kB."""
MAX_VERSIONS: Final = 100
"""Maximum number of versions that are read for one item. An item refers to many versions if the subscription was paused
for a long time. Then only the latest versions are rendered, and the message states how many are left out."""

_Items = tuple[OutboxItem, ...]
"""Items with ``queued_s`` set to 0, so that equal items of different users have the same cached body."""


class ItemVersions(msgspec.Struct, frozen=True):
    """The versions of a channel that one outbox item (a queued notification) is about.

    - ``deltas``: the changes in each version, oldest version first. The channel's first version is left out: its
      entries were published before the channel existed, and so are not news.
    - ``missing_count``: how many versions are left out because the channel's log no longer contains them, or
      because there are more than ``MAX_VERSIONS``.
    """

    deltas: tuple[Delta, ...]
    missing_count: int


async def load_versions(channels: Channels, item: OutboxItem) -> ItemVersions:
    """Load the versions of a channel that ``item`` refers to.

    An item refers to one version, or to all versions that were withheld during a pause. Raises StoreUnavailable if the
    store does not respond.
    """
    after = item.version - 1 if item.after_version is None else item.after_version
    first = max(after + 1, item.version - MAX_VERSIONS + 1)
    deltas = await channels.deltas(item.channel, first, item.version)
    return ItemVersions(tuple(delta for delta in deltas if not delta.initial), item.version - after - len(deltas))


def select_changes(item: OutboxItem, deltas: Sequence[Delta]) -> list[Delta]:
    """Return a copy of each delta in ``deltas``, with only the changes that belong to ``item``.

    ``deltas`` contain the changes in all versions that ``item`` refers to. If ``item.edits`` is true, only edits
    belong to the item. If it is false, all changes except edits do. Changes at the positions in ``item.omitted``
    never belong to it.
    """
    omitted = _omitted_indexes(item, sum(len(delta.changes) for delta in deltas))
    selected, first = [], 0
    for delta in deltas:
        left_out = [index - first for index in omitted]
        selected.append(select_part(delta, edits=item.edits, left_out=left_out))
        first += len(delta.changes)
    return selected


def _omitted_indexes(item: OutboxItem, count: int) -> list[int]:
    """Return the indexes of an item's omitted changes, which are not delivered to the user.

    ``item.omitted`` contains the positions of these changes; negative positions count back from the last change.
    ``count`` is how many changes of the item can still be read. Changes that can no longer be read are left out.
    """
    indexes = (position if position >= 0 else count + position for position in item.omitted or ())
    return [index for index in indexes if 0 <= index < count]


class Presentation(msgspec.Struct, frozen=True):
    """How a user wants one channel to be presented.

    ``title`` is the user's own title for the channel; "" means the channel's title. ``template`` is the user's template
    for its entries; None means the standard form. ``text_chars`` is the maximum length of an entry's text, and
    ``has_images`` states whether the image of a single entry is sent.
    """

    title: str = ""
    template: EntryTemplate | None = None
    text_chars: int = DEFAULT_TEXT_CHARS
    has_images: bool = False


Presentations = Mapping[ChannelId, Presentation]
"""Maps channels to the user's presentations of them. Channels that are shown in the standard form are absent."""


class Body(msgspec.Struct, frozen=True):
    """The content of a message, rendered from a batch.

    - ``xml``: the content, or "" if nothing in the batch is left to send.
    - ``detected_s``: the times (Unix seconds) at which the changes in the batch were detected.
    - ``traces``: the trace ids of these changes.
    - ``image``: the URL of an image to send in a message of its own after this one, or "".
    """

    xml: str
    detected_s: tuple[float, ...]
    traces: tuple[str, ...]
    image: str = ""


class BatchRenderer:
    """Renders and caches the bodies of messages. Every method may raise StoreUnavailable."""

    def __init__(self, store: Store) -> None:
        """Create a renderer that reads channels and subscriptions from ``store``."""
        self._store = store
        self._bodies: FIFOCache[tuple[str, frozenset[tuple[ChannelId, Presentation]], _Items], Body] = FIFOCache(
            MAX_CACHED_BODIES
        )

    async def presentations(
        self, user_id: UserId, batches: Sequence[Batch], preferences: PreferencesByNumber, zone: str
    ) -> Presentations:
        """Return the user's own presentation (title, template and so on) of each channel in ``batches``.

        Channels that the user has not customised are absent. ``preferences`` maps subscription numbers to the user's
        preferences. Dates are shown in the time zone ``zone``. Full texts are requested for further entries of the
        channels that are presented with them.
        """
        if not any(
            each.title or each.template or each.text_chars is not None or each.images for each in preferences.values()
        ):
            return {}
        channel_ids = list(dict.fromkeys(item.channel for batch in batches for item in batch.items))
        numbers = await self._store.subscriptions.numbers([(user_id, channel_id) for channel_id in channel_ids])
        presentations = {}
        for channel_id, number in zip(channel_ids, numbers, strict=True):
            if number is not None:
                text = effective_template(preferences, number)
                presentations[channel_id] = Presentation(
                    preferences.get(number, NO_PREFERENCES).title,
                    EntryTemplate(text, zone) if text else None,
                    effective_text_chars(preferences, number),
                    are_images_enabled(preferences, number),
                )
        await self._store.channels.request_full_texts(_with_full_texts(presentations))
        return {channel_id: own for channel_id, own in presentations.items() if own != Presentation()}

    async def body(self, batch: Batch, language: str, presentations: Presentations) -> Body:
        """Return the body of a batch in ``language`` (a BCP 47 tag), using the user's ``presentations`` of channels."""
        items = tuple(msgspec.structs.replace(item, queued_s=0.0) for item in batch.items)
        translator = get_translator(language)
        if items[0].channel == ANNOUNCEMENTS:
            return await self._render_announcements(items, translator)
        if presentations:
            presentations = {
                item.channel: presentations[item.channel] for item in items if item.channel in presentations
            }
        key = (translator.language, frozenset(presentations.items()), items)
        body = self._bodies.get(key)
        if body is None:
            body = self._bodies[key] = await self._render(items, translator, presentations)
        return body

    async def _render_announcements(self, items: _Items, translator: Translator) -> Body:
        """Return the body of a batch of announcements; its ``xml`` is "" if admins have stopped all of them."""
        found = [await self._store.announcements.get(item.version) for item in items]
        texts = [each.text_in(translator.language) for each in found if each is not None and not each.stopped_s]
        text = announcement_text(texts, translator) if texts else ""
        return Body(stanzas.body(text) if text else "", (), ())

    async def _render(self, items: _Items, translator: Translator, presentations: Presentations) -> Body:
        rows = await self._store.channels.get_many(list(dict.fromkeys(item.channel for item in items)))
        channels = {}
        for channel in rows:
            if channel is not None:
                title = presentations.get(channel.id, Presentation()).title or channel.title
                channels[channel.id] = msgspec.structs.replace(channel, title=title)
        templates = {
            channel_id: each.template for channel_id, each in presentations.items() if each.template is not None
        }
        deltas: list[Delta] = []
        missing_counts: Counter[ChannelId] = Counter()
        left_out: list[tuple[ChannelId, Change]] = []
        matches: defaultdict[EntryKey, list[SavedSearchMatch]] = defaultdict(list)
        for item in items:
            versions = await load_versions(self._store.channels, item)
            deltas += select_changes(item, versions.deltas)
            if versions.missing_count:
                missing_counts[item.channel] += versions.missing_count
            changes = [change for delta in versions.deltas for change in delta.changes]
            if changes:
                left_out += [(item.channel, changes[index]) for index in _omitted_indexes(item, len(changes))]
                for match in item.matches or ():
                    for position in match.positions:
                        matches[item.channel, changes[position].entry.key].append((match.number, match.query))
        also_in = {
            entry: [channels[channel_id] for channel_id in others if channel_id in channels]
            for entry, others in find_duplicates(deltas, left_out).items()
        }
        full = _with_full_texts(presentations)
        deltas = [_show_full_texts(delta) if delta.channel in full else delta for delta in deltas]
        text = render_notification(
            list(channels.values()),
            deltas,
            missing_counts,
            also_in,
            translator,
            matches=matches,
            templates=templates,
            text_chars={channel_id: each.text_chars for channel_id, each in presentations.items()},
        )
        xml, image = stanzas.body(text) if text else "", ""
        if text and not missing_counts and (single := single_entry(deltas, channels)) is not None:
            channel, change = single
            own = presentations.get(channel.id, Presentation())
            xml += link_preview(channel, change.entry, text, own.text_chars)
            image = change.entry.image if own.has_images and not is_edit(change) else ""
        return Body(xml, tuple(delta.detected_s for delta in deltas), tuple(delta.trace_id for delta in deltas), image)


def _with_full_texts(presentations: Presentations) -> set[ChannelId]:
    return {channel_id for channel_id, own in presentations.items() if own.text_chars == FULL_TEXT}


def _show_full_texts(delta: Delta) -> Delta:
    """Return ``delta`` with the full texts of its entries as their summaries, as far as there are any."""
    replace = msgspec.structs.replace

    def shown(entry: Entry) -> Entry:
        return replace(entry, summary=entry.full_text or entry.summary)

    return replace(delta, changes=tuple(replace(each, entry=shown(each.entry)) for each in delta.changes))


def find_duplicates(
    deltas: Sequence[Delta], left_out: Sequence[tuple[ChannelId, Change]]
) -> dict[EntryKey, list[ChannelId]]:
    """Map entries in ``deltas`` to the ids of the other channels that contain copies of them.

    Two entries are copies of each other if they share an article hash. ``left_out`` contains the changes that are
    not sent to the user, as pairs (channel id, change). Copies are searched for only in these changes. Entries
    without copies are absent from the result.
    """
    entry_by_mark = {
        mark: (delta.channel, change.entry.key)
        for delta in deltas
        for change in delta.changes
        for mark in article_hashes(change.entry)
    }
    duplicates: defaultdict[EntryKey, list[ChannelId]] = defaultdict(list)
    for channel_id, change in left_out:
        for key in dict.fromkeys(entry_by_mark[mark] for mark in article_hashes(change.entry) if mark in entry_by_mark):
            if channel_id not in duplicates[key] and channel_id != key[0]:
                duplicates[key].append(channel_id)
    return dict(duplicates)
