"""Dialogues about searches: find, browse public channels, show more results, and save a search."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from bots.dialogue.request_handler import Requests
from bots.i18n.translator import find_language, normalize_words
from bots.replies.base import Reply
from bots.replies.conversation import CommandSuggestion
from bots.replies.help import MissingArgument
from bots.replies.search import (
    ConfirmWatch,
    Listing,
    NoMoreResults,
    SavedSearchList,
    SearchPreview,
    SearchResults,
    SearchSaved,
)
from service.discovery.av_pairs import ATTRIBUTES, attribute_of
from service.discovery.discover import DiscoverOrder
from service.discovery.queries.query import PairCondition, Query, SearchAnswer, SearchHit
from service.discovery.queries.query_parser import parse_query, parse_watch, saved_search_text
from service.discovery.queries.query_tokens import FIELD_SYNONYMS
from service.discovery.queries.saved_searches import QueryCondition, SearchCondition
from service.errors import CellsUnavailable
from service.feeds.urls import looks_like_url

RESULTS_AT_ONCE: Final = 5
"""Results in one message, unless the user asks for another number."""
NEW_AT_ONCE: Final = 3
"""New channels that are listed below the popular ones."""
PREVIEW_DAYS: Final = 3
"""Days for which entries can be found."""
MANY_MATCHES_PER_DAY: Final = 30
"""More matches of a saved search are many: the user is asked before it is saved."""
PREVIEW_EXAMPLES: Final = 3

_NEW_WORDS: Final = frozenset(("new", "newest", "latest", "neu", "neue", "nouveau", "nouveaux", "nuevo", "nuevos"))
_POPULAR_WORDS: Final = frozenset(("popular", "top", "beliebt", "beliebte", "populaire", "populaires", "populares"))
_EVERY_LANGUAGE: Final = frozenset(("all", "any", "alle", "tous", "tout", "todos", "todo"))
_TOPIC_FIELDS: Final = frozenset(("tag", "topic", *(each for each, name in FIELD_SYNONYMS.items() if name == "tag")))
_LANGUAGE_FIELDS: Final = frozenset(("lang", *(each for each, name in FIELD_SYNONYMS.items() if name == "lang")))


async def find(requests: Requests, text: str) -> Reply:
    """Search for channels, and for entries if no channel matches and the search makes sense for entries, too.

    Channels with only some of the words are shown if no entry has all of them.
    """
    if not text.strip():
        return MissingArgument("find")
    if looks_like_url(text) and ("/" in text or ":" in text):
        return CommandSuggestion(f"subscribe {text.strip()}")
    query = parse_query(text, datetime.fromtimestamp(requests.now_s(), UTC).date(), RESULTS_AT_ONCE)
    answer = await requests.search(query)
    about_entries = _about_entries(query)
    if about_entries is not None and not _has_all_words(answer):
        entries = await requests.search(about_entries)
        if not answer.hits or _has_all_words(entries):
            return SearchResults(text, about_entries, entries, are_instead_of_channels=bool(entries.hits))
    return SearchResults(text, query, answer)


def _has_all_words(answer: SearchAnswer) -> bool:
    """Return whether a result has all words of the query."""
    return any(not hit.lacks_words for hit in answer.hits)


async def more(requests: Requests, previous: Reply | None) -> Reply:
    """Return the next results of the search or listing that ``previous`` shows.

    The order can differ from search to search. Therefore the search is repeated with a limit that includes all results
    shown so far, and those are left out.
    """
    match previous:
        case SearchResults(text, query, answer):
            limit = 2 * len(answer.hits) + query.limit + 1
            found = (await requests.search(msgspec.structs.replace(query, limit=limit))).hits
            new = tuple(hit for hit in found if hit not in answer.hits)
            shown = (*answer.hits, *new[: query.limit])
            next_answer = SearchAnswer(shown, answer.corrections, has_more=len(new) > query.limit)
            return SearchResults(text, query, next_answer, len(answer.hits), previous.are_instead_of_channels)
        case Listing(order, language, topic, hits):
            found = (await requests.discover(order, language, topic, 2 * len(hits) + RESULTS_AT_ONCE + 1)).hits
            known = {hit.channel.id for hit in hits}
            new = tuple(hit for hit in found if hit.channel.id not in known)
            next_hits = (*hits, *new[:RESULTS_AT_ONCE])
            return Listing(order, language, topic, next_hits, len(hits), has_more=len(new) > RESULTS_AT_ONCE)
        case _:
            return NoMoreResults()


async def discover(requests: Requests, text: str) -> Reply:
    """List popular or new public channels, narrowed to the language and the topic in ``text``.

    Without a language in ``text``, channels in the user's language are listed if there are any.
    """
    order, language, topic, is_plain = _discover_arguments(text)
    own_language = "" if language else (await requests.user_settings()).effective_language
    wanted = "" if language == _ANY else language or own_language
    answer = await requests.discover(order, wanted, topic, RESULTS_AT_ONCE)
    if not answer.hits and own_language:
        wanted, answer = "", await requests.discover(order, "", topic, RESULTS_AT_ONCE)
    new: tuple[SearchHit, ...] = ()
    if is_plain and answer.hits:
        known = {hit.channel.id for hit in answer.hits}
        newest = (await requests.discover("new", wanted, "", RESULTS_AT_ONCE + NEW_AT_ONCE)).hits
        new = tuple(hit for hit in newest if hit.channel.id not in known)[:NEW_AT_ONCE]
    return Listing(
        order, wanted, topic, (*answer.hits, *new),
        new_count=len(new),
        languages=tuple(facet.value for facet in answer.languages),
        topics=tuple(facet.value for facet in answer.topics),
        has_more=answer.has_more,
        is_own_language=not language and bool(wanted),
    )  # fmt: skip


async def watch(requests: Requests, text: str, *, is_confirmed: bool = False) -> Reply:
    """Save a search, and show what it would have found in the last days; list the saved searches without ``text``.

    A search with many matches is only saved if ``is_confirmed``.
    """
    if not text.strip():
        return SavedSearchList(await requests.watches())
    if "=" not in text and looks_like_url(text):
        return CommandSuggestion(f"subscribe {text.strip()}")
    condition, saved_text = parse_watch(text), saved_search_text(text)
    preview = None if is_confirmed else await _preview(requests, condition)
    if preview is not None and preview.count > MANY_MATCHES_PER_DAY * PREVIEW_DAYS:
        return ConfirmWatch(saved_text, preview)
    return SearchSaved(await requests.watch(condition, saved_text), preview)


async def _preview(requests: Requests, condition: SearchCondition) -> SearchPreview | None:
    """Return what a saved search would have found in the last days; None if this cannot be told."""
    if not isinstance(condition, QueryCondition):
        return None  # there is no index for regular expressions
    query = Query("entry", condition.all_of, condition.none_of, limit=MANY_MATCHES_PER_DAY * PREVIEW_DAYS + 1)
    with suppress(CellsUnavailable):
        answer = await requests.search(query)
        # A saved search finds no similar words, and requires all words.
        hits = () if answer.corrections else tuple(hit for hit in answer.hits if not hit.lacks_words)
        return SearchPreview(len(hits), PREVIEW_DAYS, hits[:PREVIEW_EXAMPLES])
    return None


def _about_entries(query: Query) -> Query | None:
    """Return the same query for entries; None if it is for entries already, or has conditions for channels only."""
    pairs = [each.pair for group in (*query.all_of, query.none_of) for each in group if isinstance(each, PairCondition)]
    if query.about == "entry" or any("entry" not in ATTRIBUTES[attribute_of(pair)].kinds for pair in pairs):
        return None
    return msgspec.structs.replace(query, about="entry")


_ANY: Final = "*"


def _discover_arguments(text: str) -> tuple[DiscoverOrder, str, str, bool]:
    """Return the order, the language (``_ANY`` for all, "" if none is named), the topic, and whether nothing is named.

    The words are the order, a language (its name, or ``lang:de``), and a topic, in any order.
    """
    order: DiscoverOrder = "popular"
    language, topic = "", list[str]()
    for word in text.split():
        plain = normalize_words(word).strip(",.;!?")
        field, _, value = plain.replace("=", ":").partition(":")
        if plain in _NEW_WORDS:
            order = "new"
        elif plain in _EVERY_LANGUAGE:
            language = _ANY
        elif field in _LANGUAGE_FIELDS and value:
            language = find_language(value) or value
        elif field in _TOPIC_FIELDS and value:
            topic.append(value.strip('"'))
        elif not topic and len(plain) > len("en") and find_language(plain):
            language = find_language(plain)
        elif plain not in _POPULAR_WORDS:
            topic.append(word.strip('"“”„«»'))
    return order, language, " ".join(topic), not text.strip()
