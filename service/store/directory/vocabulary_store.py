"""The vocabulary: all words by which searches can find public channels or entries.

Processes that search keep a copy of all words in memory, to complete prefixes and correct misspelt words. A word
expires unless it is added again. If there are too many words, those that were added least recently are removed.

A lost vocabulary is rebuilt as names are registered again. Until then, words are searched for exactly as the user wrote
them.
"""

# The words are in SHARDS hashes, so small that Redis keeps them as listpacks, with about 20 bytes per word. The new
# words of each hour are also in a list, from which the copies are updated.

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final
from zlib import crc32

import numpy as np

from service.discovery.av_pairs import ContentKind
from service.discovery.text_search.vocabulary import Vocabulary
from service.errors import StoreUnavailable
from service.store.client import keys
from service.store.client.node_connections import Command, Value
from service.store.client.redis_client import RedisClient, script_command

HOUR_S: Final = 3600
SHARDS: Final = 512
SHARD_WORDS: Final = 200
"""Maximum number of words in a shard; all shards together have room for 100,000 words."""
WORD_TTL_S: Final = 2 * 86_400
"""Time after which a word expires; channels are registered again every two hours, and entries once a day."""
_LATEST_WORDS: Final = 5_000
"""Maximum length of the list of an hour's new words.

Words that do not fit into the list reach the copy in a process's memory when the process reads all words again.
"""
_MAX_WORD_BYTES: Final = 64
"""Maximum size in bytes of a word together with its stem (UTF-8). Larger values do not fit into listpacks."""
_REPEAT_S: Final = 6 * 3600
"""Time in seconds after which a process may add all words again."""
_REMEMBERED_WORDS: Final = 1 << 17
"""Maximum number of words that a process remembers to have added. It remembers a hash of 8 bytes of each word."""
_UPDATE_S: Final = 60.0
"""Interval in seconds at which a process adds the new words to its copy."""
_RELOAD_S: Final = 3600.0
"""Interval in seconds at which a process reads all words again, which removes expired words from its copy."""


class StoredVocabulary:
    """The vocabulary of one directory: all words by which searches can find channels (or entries).

    Every method may raise :class:`service.errors.StoreUnavailable`.
    """

    def __init__(self, redis: RedisClient, about: ContentKind) -> None:
        """Create the repository. ``about`` selects the words: those of channels or those of entries."""
        self._redis = redis
        self._about = about
        self._added = np.zeros(_REMEMBERED_WORDS, np.int64)
        """The hashes of added words, each at the index given by its last bits."""
        self._forgotten_s = time.monotonic()
        """When ``_added`` was last cleared (monotonic time)."""
        self._copy = Vocabulary()
        self._loaded_s = self._updated_s = float("-inf")

    async def add(self, words: Mapping[str, str]) -> None:
        """Add words to the vocabulary.

        ``words`` maps each case-folded word to its stem. In the directory, channels or entries that contain the word
        are registered under the stem.
        """
        if time.monotonic() - self._forgotten_s >= _REPEAT_S:
            self._added = np.zeros(_REMEMBERED_WORDS, np.int64)
            self._forgotten_s = time.monotonic()
        members = (word if word == stem else f"{word} {stem}" for word, stem in words.items())
        new = [each for each in members if not self._is_added(each) and len(each.encode()) <= _MAX_WORD_BYTES]
        if not new:
            return
        by_shard: defaultdict[str, list[Value]] = defaultdict(list)
        for member in new:
            by_shard[keys.vocabulary(self._about, crc32(member.encode()) % SHARDS)].append(member)
        unknown = await self._redis.call_many(
            [
                script_command("vocabulary_add", (shard,), SHARD_WORDS, WORD_TTL_S, *own)
                for shard, own in by_shard.items()
            ]
        )
        if latest := [member for some in unknown for member in some]:
            key = keys.latest_words(self._about, int(time.time() // HOUR_S))
            await self._redis.call_many(
                [
                    ("LPUSH", key, *latest),
                    ("LTRIM", key, 0, _LATEST_WORDS - 1),
                    ("EXPIRE", key, 2 * HOUR_S),
                ]
            )
        for member in new:
            self._added[hash(member) % _REMEMBERED_WORDS] = hash(member)

    def _is_added(self, member: str) -> bool:
        return bool(self._added[hash(member) % _REMEMBERED_WORDS] == hash(member))

    async def read(self) -> Vocabulary:
        """Return this process's copy of the words, which is at most a minute old."""
        now_s = time.monotonic()
        if now_s - self._updated_s < _UPDATE_S:
            return self._copy
        before, self._updated_s = self._updated_s, now_s  # concurrent searches use the former copy meanwhile
        try:
            if now_s - self._loaded_s < _RELOAD_S:
                self._copy.add(_pairs(await self._latest_words()))
            else:
                self._copy = Vocabulary(_pairs(await self._all_words()))
                self._loaded_s = now_s
        except StoreUnavailable:
            self._updated_s = before
            raise
        return self._copy

    async def _latest_words(self) -> list[bytes]:
        hour = int(time.time() // HOUR_S)
        reading: list[Command] = [("LRANGE", keys.latest_words(self._about, each), 0, -1) for each in (hour - 1, hour)]
        return [word for words in await self._redis.call_many(reading) for word in words]

    async def _all_words(self) -> list[bytes]:
        reading: list[Command] = [("HKEYS", keys.vocabulary(self._about, shard)) for shard in range(SHARDS)]
        return [word for words in await self._redis.call_many(reading) for word in words]


def _pairs(members: Iterable[bytes]) -> list[tuple[str, str]]:
    """Parse ``members``, each stored as ``WORD STEM`` (or ``WORD`` if both are equal), into pairs (word, stem)."""
    parts = (member.decode().partition(" ") for member in members)
    return [(word, stem or word) for word, _, stem in parts]
