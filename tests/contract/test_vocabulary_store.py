"""The vocabulary on Redis: words of registrations, of which searching processes have a copy."""

import time
from zlib import crc32

import pytest

from service.store import Store
from service.store.client import keys
from service.store.directory import vocabulary_store
from service.store.directory.vocabulary_store import HOUR_S, SHARDS, WORD_TTL_S, StoredVocabulary


def repository(store: Store) -> StoredVocabulary:
    return StoredVocabulary(store.channels._redis, "entry")


async def test_words_of_one_process_are_candidates_in_another(store: Store) -> None:
    await repository(store).add({"volcanoes": "volcano", "python": "python"})
    copy = await repository(store).read()
    assert [(each.word, each.stem) for each in copy.similar("volcanos", 5)] == [("volcanoes", "volcano")]
    assert [each.word for each in copy.with_prefix("pyth", 5)] == ["python"]
    assert len(await StoredVocabulary(store.channels._redis, "channel").read()) == 0


async def test_a_copy_gets_new_words_and_drops_expired_ones(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_store, "_UPDATE_S", 0.0)
    reader = repository(store)
    await repository(store).add({"python": "python"})
    assert (await reader.read()).with_prefix("python", 1)
    await repository(store).add({"rust": "rust"})
    assert (await reader.read()).with_prefix("rust", 1)
    shard = keys.vocabulary("entry", crc32(b"python") % SHARDS)
    await store.redis.call("HSET", shard, "python", int(time.time() - WORD_TTL_S) // HOUR_S - 2)
    monkeypatch.setattr(vocabulary_store, "SHARD_WORDS", 400)
    words = [f"word{n}" for n in range(150_000)]
    in_shard = [word for word in words if crc32(word.encode()) % SHARDS == crc32(b"python") % SHARDS]
    for word in in_shard:  # expired words are removed now and then
        await repository(store).add({word: word})
    monkeypatch.setattr(vocabulary_store, "_RELOAD_S", 0.0)
    assert not (await reader.read()).with_prefix("python", 1)
    assert (await reader.read()).with_prefix("rust", 1)


async def test_a_flood_of_words_removes_the_oldest(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_store, "SHARDS", 1)
    monkeypatch.setattr(vocabulary_store, "SHARD_WORDS", 100)
    shard = keys.vocabulary("entry", 0)
    await store.redis.call("HSET", shard, "oldest", int(time.time()) // HOUR_S - 1)
    await repository(store).add({f"word{n}": f"word{n}" for n in range(100)})
    assert await store.redis.call("HLEN", shard) == 100
    assert not (await repository(store).read()).with_prefix("oldest", 1)


async def test_the_shards_of_a_vocabulary_stay_listpacks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_store, "SHARDS", 1)
    await repository(store).add({"я" * 40: "я" * 39} | {f"word{n}" + "s" * 20: f"word{n}" for n in range(300)})
    encoding = await store.redis.call("OBJECT", "ENCODING", keys.vocabulary("entry", 0))
    assert encoding in (b"listpack", b"ziplist")


async def test_a_process_adds_the_same_word_again_only_after_hours(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, shard = repository(store), keys.vocabulary("entry", crc32(b"python") % SHARDS)
    await writer.add({"python": "python"})
    await store.redis.call("DEL", shard)
    await writer.add({"python": "python"})
    assert await store.redis.call("EXISTS", shard) == 0
    monkeypatch.setattr(vocabulary_store, "_REPEAT_S", 0.0)
    await writer.add({"python": "python"})
    assert await store.redis.call("EXISTS", shard) == 1
