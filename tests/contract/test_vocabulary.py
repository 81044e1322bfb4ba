"""The vocabulary on Redis: words of registrations, of which searching processes have a copy."""

import time

import pytest

from service.store import Store
from service.store.client import keys
from service.store.directory import vocabulary
from service.store.directory.vocabulary import WORD_TTL_S, StoredVocabulary


def repository(store: Store) -> StoredVocabulary:
    return StoredVocabulary(store.channels._redis, "entry")


async def test_words_of_one_process_are_candidates_in_another(store: Store) -> None:
    await repository(store).add({"volcanoes": "volcano", "python": "python"})
    copy = await repository(store).read()
    assert [(each.word, each.stem) for each in copy.similar("volcanos", 5)] == [("volcanoes", "volcano")]
    assert [each.word for each in copy.with_prefix("pyth", 5)] == ["python"]
    assert len(await StoredVocabulary(store.channels._redis, "channel").read()) == 0


async def test_a_copy_learns_new_words_and_forgets_old_ones(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "_UPDATE_S", 0.0)
    reader = repository(store)
    await repository(store).add({"python": "python"})
    assert (await reader.read()).has_stem("python")
    await repository(store).add({"rust": "rust"})
    assert (await reader.read()).has_stem("rust")
    await store.redis.call("ZADD", keys.vocabulary("entry"), int(time.time()) - WORD_TTL_S - 1, "python")
    await repository(store).add({"go": "go"})
    monkeypatch.setattr(vocabulary, "_RELOAD_S", 0.0)
    assert not (await reader.read()).has_stem("python")
    assert (await reader.read()).has_stem("go")


async def test_a_flood_of_words_removes_the_oldest(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "MAX_WORDS", 100)
    await store.redis.call("ZADD", keys.vocabulary("entry"), int(time.time()) - 10, "oldest")
    await repository(store).add({f"word{n}": f"word{n}" for n in range(100)})
    assert await store.redis.call("ZCARD", keys.vocabulary("entry")) == 100
    assert not (await repository(store).read()).has_stem("oldest")
