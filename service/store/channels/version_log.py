"""The log of a channel's versions: its format, and when old versions are removed. No I/O.

The log is stored in the channel's Redis hash. For each version, the log has the *delta*: the changes since the version
before. A few recent deltas are in fields of their own, the others in blocks:

- A new delta gets its own field, whose name is the number of the version.
- After every 16 versions, these fields are moved to a *block*. The block ``bN`` has the versions 64·N to 64·N + 63. A
  block takes a third of the bytes that separate fields take, because it is compressed as a whole, column by column.
- The entries of the first delta are left out while they are the channel's latest entries, which have their own field.

The oldest block is removed when it is older than 30 days, or when the log exceeds ``MAX_BYTES`` or ``MAX_BLOCKS``.
Versions of the last day may still have to be delivered. A block with such versions is removed only if the log exceeds 4
MB.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Final, Literal

import brotli  # type: ignore[import-untyped]  # it ships no types
import msgspec

from service.location.content_cache import unpack_entries
from service.model import Change, ChannelId, Delta, Entry, Notice

VERSIONS_PER_BLOCK: Final = 64
VERSIONS_PER_MOVE: Final = 16
"""Number of versions that are moved to a block together.

A channel therefore seldom has more versions in separate fields.
"""

NEEDED_S: Final = 86_400.0 + 600.0
"""Age in seconds up to which versions are kept for outboxes: a day, and a margin for clocks and slow fan-outs."""

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
    """The data of one version, without its list of changes.

    ``count`` is the number of changes. If it is ``_AS_LATEST``, the changes are the entries in the field
    ``LATEST_FIELD``. They are not stored a second time.
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
    """Several versions, stored by column.

    - ``heads``: the versions without their changes.
    - every other list: one attribute of all changes, in the order of the versions.
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


class BlockInfo(msgspec.Struct, array_like=True, frozen=True):
    """Size and age of a block, which is a field with several versions.

    - ``size_bytes``: size of the block.
    - ``newest_s``: when the newest version in it was detected (Unix s).
    """

    size_bytes: int
    newest_s: float


class _Index(msgspec.Struct, array_like=True, frozen=True):
    """The blocks of a log of versions, in order; a block is a field with several versions.

    ``first`` is the number of the first block.
    """

    first: int
    blocks: tuple[BlockInfo, ...]


_decode_deltas = msgspec.msgpack.Decoder(_Deltas).decode
_decode_index = msgspec.msgpack.Decoder(_Index).decode


class LatestNeeded(Exception):
    """Raised if a version can be decoded only with the field ``LATEST_FIELD``, which the caller has not passed."""

    # The version's changes are then the channel's latest entries.


class LogUpdate(msgspec.Struct, frozen=True):
    """A change to a channel's hash.

    ``deleted`` are names of fields to delete. ``written`` has the fields to set, as alternating names and values.
    """

    deleted: tuple[str, ...]
    written: tuple[str | bytes, ...]


def fields_before(version: int) -> list[str]:
    """Return the names of the fields that :func:`append` needs when it adds the version after ``version``."""
    if (version + 1) % VERSIONS_PER_MOVE:
        return [LATEST_FIELD, str(version)]
    first = _first_version(_block_number(version))
    return [LATEST_FIELD, _INDEX_FIELD, *fields_of_versions(range(first, version + 1))]


def append(delta: Delta, fields: Mapping[bytes, bytes]) -> LogUpdate:
    """Return the change to a channel's hash that adds a version and removes old versions.

    - ``delta``: the changes of the new version.
    - ``fields``: the existing fields among those in ``fields_before(delta.version - 1)``.
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
    """Return how many of the oldest ``blocks`` are to be removed at ``now_s`` (Unix s).

    A block is a field with several versions of a channel. The last block is never removed.
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
    """Encode one delta."""
    return _encode([delta])


def encode_first(delta: Delta, latest: Sequence[Entry]) -> bytes:
    """Encode the first version of a channel.

    ``latest`` are the channel's latest entries, newest first, which have a field of their own. If ``delta`` adds
    exactly these entries, its changes are left out.
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
    )
    packed = msgspec.msgpack.encode(columns)
    is_best = len(deltas) > 1 and len(packed) <= _MAX_BEST_BYTES
    compressed: bytes = brotli.compress(packed, quality=_BEST_QUALITY if is_best else _QUICK_QUALITY)
    return compressed


def fields_of_versions(versions: Collection[int]) -> list[str]:
    """Return the names of the fields that can contain these versions."""
    numbers = dict.fromkeys(_block_number(version) for version in versions)
    return [*map(str, versions), *map(block_field, numbers)]


def decode_deltas(cid: ChannelId, fields: Mapping[bytes, bytes], versions: Iterable[int]) -> list[Delta]:
    """Return the changes of ``versions``, oldest first. Versions that are not in ``fields`` are left out.

    ``fields`` are fields of the channel's hash. Raises :class:`LatestNeeded` if ``LATEST_FIELD`` is needed and missing.
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
    rows = zip(columns.kinds, entries, columns.lines, columns.before, strict=True)
    return tuple(
        Change(kind, Entry(*entry), line, before) for kind, entry, line, before in islice(rows, first, first + count)
    )


def _join(texts: list[str]) -> _Texts:
    return texts if not texts or any("\n" in text for text in texts) else "\n".join(texts)


def _split(texts: _Texts) -> list[str]:
    return texts.split("\n") if isinstance(texts, str) else texts


def block_field(number: int) -> str:
    """Return the name of the field with the block of this number."""
    return f"b{number}"


def _block_number(version: int) -> int:
    return version // VERSIONS_PER_BLOCK


def _first_version(number: int) -> int:
    return number * VERSIONS_PER_BLOCK
