"""The content cache's bounds, and the integrity of its contents."""

from hypothesis import given
from hypothesis import strategies as st

from service.location.content_cache import (
    _OVERHEAD_BYTES,
    Content,
    ContentCache,
    decode,
    digest_of,
    encode,
    merge_latest,
    pack_entries,
    unpack_entries,
    unpack_titles,
)
from service.model import Change, Entry

MOST_BYTES, KEPT_S = 4_000, 100.0

CHANNELS = st.sampled_from([f"{number:040x}" for number in range(6)])
CONTENTS = st.builds(Content, st.binary(max_size=800), st.binary(max_size=200))
ENTRIES = st.builds(Entry, st.text(max_size=3), st.text(max_size=5))


@given(st.lists(st.tuples(CHANNELS, CONTENTS, st.floats(0, 60)), max_size=40))
def test_the_cache_keeps_its_bounds_and_one_content_per_channel(puts: list[tuple[str, Content, float]]) -> None:
    cache, now_s = ContentCache(MOST_BYTES, KEPT_S), 0.0
    put_s: dict[bytes, float] = {}
    for cid, content, later_s in puts:
        now_s += later_s
        cache.expire(now_s)
        digest = digest_of(content)
        cache.put(cid, digest, content, now_s)
        put_s[digest] = now_s
        assert cache.get(digest, now_s) == content
        kept = {digest: cache._contents[owner].content for digest, owner in cache._channels.items()}
        assert cache.size_bytes == sum(each.size_bytes + _OVERHEAD_BYTES for each in kept.values()) <= MOST_BYTES
        assert all(digest_of(each) == digest for digest, each in kept.items())
        assert all(now_s - put_s[digest] <= KEPT_S for digest in kept)
        assert len(cache._contents) == len(cache.digests)


def test_the_least_recently_used_content_is_evicted_first() -> None:
    cache = ContentCache(3 * (_OVERHEAD_BYTES + 100), KEPT_S)
    contents = [Content(bytes([number]) * 100, b"") for number in range(4)]
    digests = [digest_of(content) for content in contents]
    for number in range(3):
        cache.put(f"{number:040x}", digests[number], contents[number], 0.0)
    assert cache.get(digests[0], 50.0) == contents[0]
    cache.put(f"{3:040x}", digests[3], contents[3], 60.0)
    assert set(cache.digests) == {digests[0], digests[2], digests[3]}
    cache.expire(101.0)
    assert set(cache.digests) == {digests[0], digests[3]}
    assert cache.get(digests[0], 151.0) is None


@given(CONTENTS)
def test_contents_survive_encoding_and_match_their_digest(content: Content) -> None:
    wire = b"".join(encode(content))
    assert decode(memoryview(wire)) == content
    other = Content(content.memory + b"!", content.latest)
    moved = Content(content.memory[:-1], content.memory[-1:] + content.latest)
    assert digest_of(other) != digest_of(content)
    assert moved == content or digest_of(moved) != digest_of(content)


@given(st.lists(st.lists(ENTRIES, max_size=4), max_size=8))
def test_latest_entries_do_not_depend_on_batching(deltas: list[list[Entry]]) -> None:
    latest: tuple[Entry, ...] = ()
    for delta in deltas:
        latest = merge_latest([Change("addition", entry) for entry in delta], latest)
    whole = merge_latest([Change("addition", entry) for delta in deltas for entry in delta], ())
    assert latest == whole
    assert unpack_entries(pack_entries(latest)) == latest
    assert unpack_titles(pack_entries(latest)) == [entry.title for entry in latest]
