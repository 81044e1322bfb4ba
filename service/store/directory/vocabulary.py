"""The vocabulary in Redis: the words with which public channels or entries are registered, as soft state.

Registering processes add the words of the names that they register; searching processes keep a copy in memory, in which
they look up prefixes and misspelt words. A word that is not added again expires. If there are too many words, those
that were added least recently are removed, so that frequent words stay. A lost vocabulary is filled again as names are
refreshed; until then, words are searched for as they are written.
"""

import time
from collections.abc import Mapping
from typing import Final

from cachetools import TTLCache

from service.discovery.av_pairs import ContentKind
from service.discovery.text_search.vocabulary import Vocabulary
from service.errors import StoreUnavailable
from service.store.client import keys
from service.store.client.connection import BatchingClient, Value

MAX_WORDS: Final = 100_000
WORD_TTL_S: Final = 2 * 86_400
"""Time after which a word expires; channels are registered again every two hours, and entries once a day."""
_REPEAT_S: Final = 6 * 3600
"""Time for which a process does not add a word again."""
_UPDATE_S: Final = 60.0
"""Time after which a copy reads the words that are new."""
_RELOAD_S: Final = 3600.0
"""Time after which a copy is read anew, without the words that have expired."""
_PAGE: Final = 5_000


class StoredVocabulary:
    """The words of the directory of channels, or of that of entries.

    Every method may raise :class:`service.errors.StoreUnavailable`.
    """

    def __init__(self, redis: BatchingClient, about: ContentKind) -> None:
        """Create the repository of the words of channels or of entries, as ``about`` states."""
        self._redis = redis
        self._key = keys.vocabulary(about)
        self._added: TTLCache[str, None] = TTLCache(MAX_WORDS, _REPEAT_S)
        self._copy = Vocabulary()
        self._loaded_s = self._updated_s = float("-inf")
        self._newest_s = 0

    async def add(self, words: Mapping[str, str]) -> None:
        """Add folded words, each with the stem with which documents are registered."""
        members = (word if word == stem else f"{word} {stem}" for word, stem in words.items())
        new = [member for member in members if member not in self._added]
        if not new:
            return
        now_s = int(time.time())
        scored: list[Value] = [value for member in new for value in (now_s, member)]
        await self._redis.call_many(
            [
                ("ZADD", self._key, *scored),
                ("ZREMRANGEBYSCORE", self._key, "-inf", now_s - WORD_TTL_S),
                ("ZREMRANGEBYRANK", self._key, 0, -MAX_WORDS - 1),
            ]
        )
        self._added.update(dict.fromkeys(new))

    async def read(self) -> Vocabulary:
        """Return the words, as they were at most a minute ago."""
        now_s = time.monotonic()
        if now_s - self._updated_s < _UPDATE_S:
            return self._copy
        before, self._updated_s = self._updated_s, now_s  # concurrent searches use the former copy meanwhile
        try:
            if now_s - self._loaded_s < _RELOAD_S:
                self._copy.add(await self._words_since(self._newest_s))
            else:
                self._copy = Vocabulary(await self._all_words())
                self._loaded_s = now_s
        except StoreUnavailable:
            self._updated_s = before
            raise
        return self._copy

    async def _all_words(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for first in range(0, MAX_WORDS, _PAGE):
            page = await self._redis.call("ZRANGE", self._key, first, first + _PAGE - 1, "WITHSCORES")
            found += self._words_of(page)
            if len(page) < _PAGE:
                break
        return found

    async def _words_since(self, since_s: int) -> list[tuple[str, str]]:
        # Words that other processes add in the same second must not be missed.
        range_and_page = (since_s - 1, "+inf", "WITHSCORES", "LIMIT", 0, _PAGE)
        return self._words_of(await self._redis.call("ZRANGEBYSCORE", self._key, *range_and_page))

    def _words_of(self, page: list[tuple[bytes, float]]) -> list[tuple[str, str]]:
        """Return the words of a page in the order of their times, each with its stem, and note the latest time."""
        if page:
            self._newest_s = max(self._newest_s, int(page[-1][1]))
        parts = (member.decode().partition(" ") for member, _ in page)
        return [(word, stem or word) for word, _, stem in parts]
