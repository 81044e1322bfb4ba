"""The log of a channel's versions: its format, and the rules for removing old versions. No I/O.

The log is stored in the channel's Redis hash. For each version, it contains the *delta*: the changes since the previous
version. A few recent deltas have fields of their own; older ones are stored in blocks:

- A new delta gets its own field, whose name is the version number.
- After every 16 versions, these fields are moved to a *block*. The block ``bN`` contains the versions 64·N to 64·N +
  63. A block needs a third of the space of separate fields, because it is compressed as a whole, column by column.
- The entries of the first delta are left out as long as they are also the channel's latest entries, which are stored in
  the field ``latest`` anyway.

The oldest block is removed when all its versions are older than 30 days, or when the log exceeds ``MAX_BYTES`` or
``MAX_BLOCKS``. There is one exception: versions from the last day may still have to be delivered. A block that contains
such versions is removed only if the log exceeds 4 MB.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, Literal

import brotli  # type: ignore[import-untyped]  # it ships no types
import msgspec

from service.location.content_cache import unpack_entries
from service.model import Change, ChannelId, Delta, Enclosure, Entry, Notice

VERSIONS_PER_BLOCK: Final = 64
VERSIONS_PER_MOVE: Final = 16
"""Number of versions that are moved to a block together.

A channel therefore seldom has more versions in separate fields.
"""

NEEDED_S: Final = 86_400.0 + 600.0
"""Age in seconds up to which outboxes may need a version: a day, plus a margin for clock errors and slow fan-outs."""

MAX_AGE_S: Final = 30 * 86_400.0
MAX_BYTES: Final = 80 * 1024
"""Size in bytes above which the oldest block of a log is removed, unless outboxes may refer to its versions.

Redis uses up to a sixth more memory.
"""

MAX_BLOCKS: Final = 64
MAX_NEEDED_BYTES: Final = 4 * 1024 * 1024
_MIN_BLOCKS: Final = 2
"""Number of latest blocks that are kept even if they are older than ``MAX_AGE_S``."""

_MAX_FIELDS_BYTES: Final = 128 * 1024
"""Maximum total size in bytes of the fields that are moved to a block together.

If the fields are larger, they are not moved.
"""

_MAX_BEST_BYTES: Final = 32 * 1024
"""Maximum size in bytes of a block that is compressed with the best quality.

The best quality takes 1 ms per kB. Larger blocks are compressed with a lower quality, which takes 0.02 ms per kB.
"""

LATEST_FIELD: Final = "latest"
_INDEX_FIELD: Final = "log"
_AS_LATEST: Final = -1
_BEST_QUALITY, _QUICK_QUALITY = 11, 5


class _Head(msgspec.Struct, array_like=True):
    """The data of one version, without its changes.

    - ``detected_s``: when the version was detected (Unix s).
    - ``initial``: True for a version that is not delivered to subscribers, such as the channel's first one.
    - ``count``: number of changes that are stored for the version. ``_AS_LATEST`` means that none are stored, because
      the version only adds the entries that the field ``LATEST_FIELD`` contains.
    """

    version: int
    detected_s: float
    initial: bool
    notice: Notice | None
    count: int


_Texts = str | list[str]
"""Type of a list of texts. Usually it is stored as one string, in which line feeds separate the texts, to save bytes.

The texts are stored as a list if there are none, or if a text contains a line feed.
"""


class _Deltas(msgspec.Struct, array_like=True):
    """Several versions and their changes, stored column by column.

    - ``heads``: the versions, without their changes.
    - ``files``: the image and the enclosures of those entries that have any, under the position of the change.
    - ``full_texts``: the full texts of those entries that have one, under the position of the change.
    - The other fields are the columns. Each contains one attribute of every change, beginning with the changes of the
      first version.
    """

    heads: list[_Head]
    kinds: list[Literal["addition", "omission", "replacement"]]
    keys: _Texts
    titles: _Texts
    links: _Texts
    summaries: _Texts
    authors: list[tuple[str, ...]]
    tags: list[tuple[str, ...]]
    published: list[float | None]
    lines: list[int]
    before: list[str]
    files: dict[int, tuple[str, tuple[Enclosure, ...]]] = {}
    full_texts: dict[int, str] = {}


class BlockInfo(msgspec.Struct, array_like=True, frozen=True):
    """Size and age of a block, which is a hash field that contains several versions.

    - ``size_bytes``: size of the block.
    - ``newest_s``: when the newest version in the block was detected (Unix s).
    """

    size_bytes: int
    newest_s: float


class _Index(msgspec.Struct, array_like=True, frozen=True):
    """Sizes and ages of all blocks of a version log, oldest first. A block contains several versions.

    ``first`` is the number N in the name ``bN`` of the first block.
    """

    first: int
    blocks: tuple[BlockInfo, ...]


_decode_deltas = msgspec.msgpack.Decoder(_Deltas).decode
_decode_index = msgspec.msgpack.Decoder(_Index).decode


class LatestNeeded(Exception):
    """Raised if a version cannot be decoded without the field ``LATEST_FIELD``, which the caller has not passed."""

    # The version's changes are then the channel's latest entries.


class LogUpdate(msgspec.Struct, frozen=True):
    """An update to the version log in a channel's Redis hash.

    - ``deleted``: names of the fields to delete.
    - ``written``: fields to set, as alternating names and values.
    """

    deleted: tuple[str, ...]
    written: tuple[str | bytes, ...]


def fields_before(version: int) -> list[str]:
    """Return the names of the hash fields that :func:`append` needs to add version ``version`` + 1."""
    if (version + 1) % VERSIONS_PER_MOVE:
        return [LATEST_FIELD, str(version)]
    first = _first_version(_block_number(version))
    return [LATEST_FIELD, _INDEX_FIELD, *fields_of_versions(range(first, version + 1))]


def append(delta: Delta, fields: Mapping[bytes, bytes]) -> LogUpdate:
    """Return the update to a channel's Redis hash that adds a version and removes old versions.

    - ``delta``: the new version.
    - ``fields``: maps the name of each existing field in ``fields_before(delta.version - 1)`` to the field's value.
    """
    fields = {LATEST_FIELD.encode(): b"", **fields}
    version = delta.version - 1
    written = {str(delta.version): encode(delta)}
    packed = fields.get(str(version).encode())
    if packed is not None and _decode_deltas(brotli.decompress(packed)).heads[0].count == _AS_LATEST:
        # The latest entries are about to change.
        fields[str(version).encode()] = written[str(version)] = _encode(decode_deltas(delta.channel, fields, [version]))
    if delta.version % VERSIONS_PER_MOVE:
        return LogUpdate((), tuple(chain.from_iterable(written.items())))
    return _move(delta, fields, written)


def _move(delta: Delta, fields: Mapping[bytes, bytes], written: dict[str, bytes]) -> LogUpdate:
    number = _block_number(delta.version - 1)
    versions = range(_first_version(number), delta.version)
    present = [name for name in fields_of_versions(versions) if name.encode() in fields]
    deleted, size_bytes = [], sum(len(fields[name.encode()]) for name in present)
    if size_bytes <= _MAX_FIELDS_BYTES:
        block = _encode(decode_deltas(delta.channel, fields, versions))
        deleted, size_bytes = [name for name in present if name.isdigit()], len(block)
        written = {name: value for name, value in written.items() if name not in deleted} | {block_field(number): block}
    index = _decode_index(fields.get(_INDEX_FIELD.encode()) or msgspec.msgpack.encode(_Index(number, ())))
    info = BlockInfo(size_bytes, delta.detected_s)
    earlier = index.blocks[: number - index.first]
    blocks = (*earlier, *[BlockInfo(0, info.newest_s)] * (number - index.first - len(earlier)), info)
    outdated = count_outdated(blocks, delta.detected_s)
    for removed in range(index.first, index.first + outdated):
        begin = _first_version(removed)
        deleted += fields_of_versions(range(begin, begin + VERSIONS_PER_BLOCK))
    written[_INDEX_FIELD] = msgspec.msgpack.encode(_Index(index.first + outdated, blocks[outdated:]))
    return LogUpdate(tuple(deleted), tuple(chain.from_iterable(written.items())))


def count_outdated(blocks: Sequence[BlockInfo], now_s: float) -> int:
    """Return how many blocks, counted from the oldest, are to be removed at ``now_s`` (Unix s).

    ``blocks`` describes all blocks of a channel's log, oldest first. The last block is never removed.
    """
    size_bytes = sum(block.size_bytes for block in blocks)
    for count, block in enumerate(blocks[:-1]):
        left, age_s = len(blocks) - count, now_s - block.newest_s
        is_old = age_s > MAX_AGE_S and left > _MIN_BLOCKS
        if size_bytes <= MAX_NEEDED_BYTES and (
            age_s <= NEEDED_S or not (is_old or size_bytes > MAX_BYTES or left > MAX_BLOCKS)
        ):
            return count
        size_bytes -= block.size_bytes
    return max(0, len(blocks) - 1)


def encode(delta: Delta) -> bytes:
    """Encode the changes of one version."""
    return _encode([delta])


def encode_first(delta: Delta, latest: Sequence[Entry]) -> bytes:
    """Encode the changes of a channel's first version.

    ``latest`` contains the channel's latest entries, newest first, which are stored in a separate field. If ``delta``
    adds exactly these entries, its changes are left out of the result.
    """
    added = tuple(Change("addition", entry) for entry in reversed(latest))
    return _encode([delta], as_latest=delta.changes == added)


def _encode(deltas: Collection[Delta], *, as_latest: bool = False) -> bytes:
    changes = [] if as_latest else [change for delta in deltas for change in delta.changes]
    entries = [change.entry for change in changes]
    columns = _Deltas(
        heads=[
            _Head(
                each.version,
                each.detected_s,
                each.initial,
                each.notice,
                _AS_LATEST if as_latest else len(each.changes),
            )
            for each in deltas
        ],
        kinds=[change.kind for change in changes],
        keys=_join([entry.key for entry in entries]),
        titles=_join([entry.title for entry in entries]),
        links=_join([entry.link for entry in entries]),
        summaries=_join([entry.summary for entry in entries]),
        authors=[entry.authors for entry in entries],
        tags=[entry.tags for entry in entries],
        published=[entry.published for entry in entries],
        lines=[change.line for change in changes],
        before=[change.before for change in changes],
        files={
            position: (entry.image, entry.enclosures)
            for position, entry in enumerate(entries)
            if entry.image or entry.enclosures
        },
        full_texts={position: entry.full_text for position, entry in enumerate(entries) if entry.full_text},
    )
    packed = msgspec.msgpack.encode(columns)
    is_best = len(deltas) > 1 and len(packed) <= _MAX_BEST_BYTES
    compressed: bytes = brotli.compress(packed, quality=_BEST_QUALITY if is_best else _QUICK_QUALITY)
    return compressed


def fields_of_versions(versions: Collection[int]) -> list[str]:
    """Return the names of all fields that may contain the given versions."""
    numbers = dict.fromkeys(_block_number(version) for version in versions)
    return [*map(str, versions), *map(block_field, numbers)]


def decode_deltas(cid: ChannelId, fields: Mapping[bytes, bytes], versions: Iterable[int]) -> list[Delta]:
    """Return the changes of each version in ``versions`` that ``fields`` contains, oldest first.

    ``fields`` maps names of fields of the channel's Redis hash to their values. Raises :class:`LatestNeeded` if
    ``LATEST_FIELD`` is needed but missing.
    """
    wanted, found = set(versions), dict[int, Delta]()
    for name, packed in fields.items():
        if not name.isdigit() and not (name[:1] == b"b" and name[1:].isdigit()):
            continue
        columns, first = _decode_deltas(brotli.decompress(packed)), 0
        for head in columns.heads:
            count = max(0, head.count)
            if head.version in wanted:
                changes = _latest_as_changes(fields) if head.count == _AS_LATEST else _changes(columns, first, count)
                found[head.version] = Delta(
                    cid, head.version - 1, head.version, head.detected_s, changes, head.initial, head.notice
                )
            first += count
    return [found[version] for version in sorted(found)]


def _latest_as_changes(fields: Mapping[bytes, bytes]) -> tuple[Change, ...]:
    latest = fields.get(LATEST_FIELD.encode())
    if latest is None:
        raise LatestNeeded
    return tuple(Change("addition", entry) for entry in reversed(unpack_entries(latest)))


def _changes(columns: _Deltas, first: int, count: int) -> tuple[Change, ...]:
    entries = zip(
        *map(_split, (columns.keys, columns.titles, columns.links, columns.summaries)),
        *(columns.authors, columns.tags, columns.published),
        strict=True,
    )
    rows = enumerate(zip(columns.kinds, entries, columns.lines, columns.before, strict=True))
    rest: dict[int, tuple[Any, ...]] = dict(columns.files)
    for position, text in columns.full_texts.items():
        rest[position] = (*rest.get(position, ("", ())), text)
    return tuple(
        Change(kind, Entry(*entry, *rest.get(position, ())), line, before)
        for position, (kind, entry, line, before) in islice(rows, first, first + count)
    )


def _join(texts: list[str]) -> _Texts:
    return texts if not texts or any("\n" in text for text in texts) else "\n".join(texts)


def _split(texts: _Texts) -> list[str]:
    return texts.split("\n") if isinstance(texts, str) else texts


def block_field(number: int) -> str:
    """Return the name of the hash field that contains block ``number``."""
    return f"b{number}"


def _block_number(version: int) -> int:
    return version // VERSIONS_PER_BLOCK


def _first_version(number: int) -> int:
    return number * VERSIONS_PER_BLOCK
