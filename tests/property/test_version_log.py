"""The log of a channel's versions returns what was appended, and is shortened only by what nobody needs."""

import random

import brotli  # type: ignore[import-untyped]  # it ships no types
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from service.location.content_cache import merge_latest, pack_entries
from service.model import Change, Delta, Enclosure, Entry, Notice
from service.store.channels import version_log
from service.store.channels.version_log import BlockInfo

CHANNEL = "c" * 40
HOUR_S, DAY_S = 3600.0, 86_400.0
text = st.text(max_size=20)
texts = st.lists(text, max_size=2).map(tuple)
plain_entries = st.builds(Entry, text, text, text, text, texts, texts, st.none() | st.floats(0, 2e9))
files = st.lists(st.builds(Enclosure, text, text, st.integers(0, 10**11)), max_size=2).map(tuple)
entries = plain_entries | st.builds(
    msgspec.structs.replace,
    plain_entries,
    image=text,
    enclosures=files,
    summary=st.just("word " * 400) | text,
    full_text=text,
)
changes = st.builds(
    Change, st.sampled_from(["addition", "omission", "replacement"]), entries, st.integers(0, 2**31), text
)
notices = st.none() | st.builds(Notice, st.sampled_from(["dead", "back", "moved", "quarantined"]), text)


class Log:
    """A channel's hash, to which versions are appended as the store does it."""

    def __init__(self) -> None:
        self.fields: dict[bytes, bytes] = {}
        self.version = 0

    def append(self, delta: Delta) -> Delta:
        """Add the next version; return its delta."""
        names = [name.encode() for name in version_log.fields_before(self.version)]
        delta = msgspec.structs.replace(delta, base_version=self.version, version=self.version + 1)
        update = version_log.append(delta, {name: self.fields[name] for name in names if name in self.fields})
        for deleted in update.deleted:
            self.fields.pop(deleted.encode(), None)
        parts = [part.encode() if isinstance(part, str) else part for part in update.written]
        self.fields |= dict(zip(parts[::2], parts[1::2], strict=True))
        self.version += 1
        return delta

    def read(self, first: int, last: int) -> list[Delta]:
        """Return the deltas of these versions that the log has."""
        names = [name.encode() for name in ("latest", *version_log.fields_of_versions(range(first, last + 1)))]
        found = {name: self.fields[name] for name in names if name in self.fields}
        return version_log.decode_deltas(CHANNEL, found, range(first, last + 1))

    @property
    def size_bytes(self) -> int:
        """The size of all fields."""
        return sum(len(name) + len(value) for name, value in self.fields.items())


def delta_of(detected_s: float, *changed: Change, initial: bool = False, notice: Notice | None = None) -> Delta:
    return Delta(CHANNEL, 0, 0, detected_s, changed, initial, notice)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.lists(changes, max_size=3), st.booleans(), notices), min_size=1, max_size=80))
def test_a_log_returns_what_was_appended(versions: list[tuple[list[Change], bool, Notice | None]]) -> None:
    log = Log()
    added = [
        log.append(delta_of(1e9 + 60.0 * at, *changed, initial=initial, notice=notice))
        for at, (changed, initial, notice) in enumerate(versions)
    ]
    assert log.read(1, log.version) == added
    assert log.read(log.version, log.version) == added[-1:]


@given(changed=st.lists(changes, max_size=3), has_files_column=st.booleans())
def test_a_version_without_the_columns_of_files_and_full_texts_is_readable(
    *, changed: list[Change], has_files_column: bool
) -> None:
    """Records of previous versions lack the columns, each of which takes a byte if it is empty."""
    without = [
        msgspec.structs.replace(each, entry=msgspec.structs.replace(each.entry, image="", enclosures=(), full_text=""))
        for each in changed
    ]
    delta = msgspec.structs.replace(delta_of(1e9, *without), base_version=1, version=2)
    columns = brotli.decompress(version_log.encode(delta))
    *old, files, full_texts = msgspec.msgpack.decode(columns)
    assert files == full_texts == {}
    old += [files] if has_files_column else []
    record = msgspec.msgpack.encode(old)
    assert len(columns) == len(record) + (1 if has_files_column else 2)
    assert version_log.decode_deltas(CHANNEL, {b"2": brotli.compress(record)}, [2]) == [delta]


@settings(max_examples=25)
@given(
    st.lists(entries.map(lambda entry: entry.excerpt()), max_size=4, unique_by=lambda entry: entry.key),
    st.integers(1, 40),
)
def test_a_first_version_keeps_its_entries_when_the_latest_change(listed: list[Entry], later: int) -> None:
    first = Delta(CHANNEL, 0, 1, 1e9, tuple(Change("addition", entry) for entry in listed), initial=True)
    log = Log()
    latest = merge_latest(first.changes, ())
    log.version, log.fields = 1, {b"1": version_log.encode_first(first, latest), b"latest": pack_entries(latest)}
    assert log.read(1, 1) == [first]
    for number in range(later):
        added = log.append(delta_of(1e9 + number, Change("addition", Entry(f"new {number}"))))
        latest = merge_latest(added.changes, latest)
        log.fields[b"latest"] = pack_entries(latest)
    assert log.read(1, 1) == [first]


@given(st.lists(st.tuples(st.integers(0, 300_000), st.floats(0, 40 * DAY_S)), min_size=1, max_size=80))
def test_a_block_that_outboxes_need_is_removed_only_above_the_hard_limit(given: list[tuple[int, float]]) -> None:
    ages_s = sorted((age_s for _, age_s in given), reverse=True)
    blocks = [BlockInfo(size, 1e9 - age_s) for (size, _), age_s in zip(given, ages_s, strict=True)]
    removed = version_log.count_outdated(blocks, 1e9)
    for count in range(removed):
        left_bytes = sum(block.size_bytes for block in blocks[count:])
        assert left_bytes > version_log.MAX_NEEDED_BYTES or ages_s[count] > version_log.NEEDED_S
    left = blocks[removed:]
    assert left
    assert len(left) == 1 or sum(block.size_bytes for block in left) <= version_log.MAX_NEEDED_BYTES
    if len(left) > 1 and ages_s[removed] > version_log.NEEDED_S:
        assert sum(block.size_bytes for block in left) <= version_log.MAX_BYTES
        assert len(left) <= version_log.MAX_BLOCKS


@settings(max_examples=12)
@given(st.integers(0, 2**32), st.sampled_from([60.0, 300.0, HOUR_S]))
def test_versions_of_the_last_day_are_kept(seed: int, gap_s: float) -> None:
    draw, log, now_s = random.Random(seed), Log(), 1e9  # noqa: S311 - the same each time
    detected: dict[int, float] = {}
    for _ in range(draw.randrange(1, 200)):
        now_s += draw.expovariate(1 / gap_s) * draw.choice((1, 1, 1, 30))
        entry = Entry(str(draw.random()), summary=draw.randbytes(900).hex())
        detected[log.append(delta_of(now_s, Change("addition", entry))).version] = now_s
    needed = [version for version, at_s in detected.items() if now_s - at_s <= DAY_S]
    assert [delta.version for delta in log.read(needed[0], log.version)] == needed


def test_a_log_is_bounded_in_bytes() -> None:
    draw, log, sizes = random.Random(1), Log(), []  # noqa: S311 - the same each time
    for version in range(1_500):
        log.append(delta_of(1e9 + HOUR_S * version, Change("addition", Entry(draw.randbytes(60).hex()))))
        sizes.append(log.size_bytes)
    assert max(sizes) < 90_000
