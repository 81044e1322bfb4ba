"""Dialogues about searches: search, browse public channels, show more results, and manage saved searches."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec

from bots.commands.parser import SubscribeCommand, VerbCommand
from bots.dialogue.reply import Option, Reply, failure, missing_argument, suggestion
from bots.dialogue.request_handler import Requests
from bots.dialogue.subscription_commands import subscribe
from bots.i18n.translator import Translator, find_language, normalize_words
from bots.replies import search_texts as texts
from bots.replies.formatting import title
from service.discovery.av_pairs import ATTRIBUTES, attribute_of
from service.discovery.discover_listings import DiscoverOrder
from service.discovery.queries.query import PairCondition, Query, SearchAnswer, SearchHit
from service.discovery.queries.query_parser import parse_query, parse_watch, saved_search_text
from service.discovery.queries.query_tokens import FIELD_SYNONYMS
from service.discovery.queries.saved_searches import QueryCondition, SearchCondition
from service.errors import CellsUnavailable
from service.feeds.canonical_urls import looks_like_url, selector_of, without_selector
from service.feeds.parsing.html_text import one_line
from service.model import ChannelId

RESULTS_AT_ONCE: Final = 5
"""Number of results in one message, unless the user asks for a different number."""
NEW_AT_ONCE: Final = 3
"""Number of new channels that are listed below the popular ones."""
PREVIEW_DAYS: Final = 3
"""The preview of a saved search covers the entries of this number of days."""
MANY_MATCHES_PER_DAY: Final = 30
"""If a search has more matches per day than this, the user is asked to confirm it before it is saved."""
PREVIEW_EXAMPLES: Final = 3

_NEW_WORDS: Final = frozenset(
    (
        *("new", "newest", "latest", "neu", "neue", "nouveau", "nouveaux", "nuevo", "nuevos", "nuovo", "nuovi", "novo"),
        *("novos", "nieuw", "nieuwe", "nowy", "nowe"),
    )
)
_POPULAR_WORDS: Final = frozenset(
    (
        *("popular", "top", "beliebt", "beliebte", "populaire", "populaires", "populares", "popolare", "popolari"),
        *("populair", "popularny", "popularne"),
    )
)
_EVERY_LANGUAGE: Final = frozenset(
    ("all", "any", "alle", "tous", "tout", "todos", "todo", "tutti", "tutte", "tutto", "wszystkie")
)
_TOPIC_FIELDS: Final = frozenset(("tag", "topic", *(each for each, name in FIELD_SYNONYMS.items() if name == "tag")))
_LANGUAGE_FIELDS: Final = frozenset(("lang", *(each for each, name in FIELD_SYNONYMS.items() if name == "lang")))


async def find(requests: Requests, command: VerbCommand) -> Reply:
    """Search for channels; if no channel contains all words of the query, search for entries as well.

    The reply shows the entries if one of them contains all words, or if no channel was found. Otherwise, it shows the
    channels, even if they contain only some of the words. Entries are not searched if the query has conditions that
    only channels can satisfy.
    """
    text = command.words
    if not text.strip():
        return missing_argument("find", requests.translator)
    if looks_like_url(text) and ("/" in text or ":" in text):
        return _suggest_subscribing(text, requests.translator)
    query = parse_query(text, datetime.fromtimestamp(requests.now_s(), UTC).date(), RESULTS_AT_ONCE)
    answer = await requests.search(query)
    about_entries = _about_entries(query)
    if about_entries is not None and not _has_all_words(answer):
        entries = await requests.search(about_entries)
        if not answer.hits or _has_all_words(entries):
            return _results(requests, text, about_entries, entries, are_instead_of_channels=bool(entries.hits))
    return _results(requests, text, query, answer)


def _suggest_subscribing(url: str, translator: Translator) -> Reply:
    command = f"subscribe {url.strip()}"
    return suggestion(command, partial(subscribe, command=SubscribeCommand(url.strip())), translator)


def _has_all_words(answer: SearchAnswer) -> bool:
    """Return whether at least one of the results contains all words of the query."""
    return any(not hit.lacks_words for hit in answer.hits)


def _results(
    requests: Requests, text: str, query: Query, answer: SearchAnswer, *, are_instead_of_channels: bool = False
) -> Reply:
    """Return the reply that shows the first page of the results of a search.

    ``text`` is the query as the user wrote it, ``query`` is the parsed query, and ``answer`` contains the results.
    ``are_instead_of_channels`` states that the results are entries because no suitable channel was found.
    """

    async def search(requests: Requests, limit: int) -> Sequence[SearchHit]:
        return (await requests.search(msgspec.structs.replace(query, limit=limit))).hits

    describe = partial(
        texts.search_results,
        text,
        query,
        answer.corrections,
        requests.translator,
        are_instead_of_channels=are_instead_of_channels,
    )
    return _Pages(query.limit, search, describe, requests.translator).show(answer.hits, has_more=answer.has_more)


class _Pages(msgspec.Struct, frozen=True):
    """A list of channels or entries that is shown page by page; the user can subscribe to the channel of each hit.

    - ``size``: how many hits are on a page.
    - ``fetch``: a function that returns the first hits. Its arguments are the user's request handler and the
      maximum number of hits.
    - ``describe``: a function that returns the text of a page.
    - ``translator``: the translator into the user's language.
    """

    size: int
    fetch: Callable[[Requests, int], Awaitable[Sequence[SearchHit]]]
    describe: Callable[..., str]
    translator: Translator

    def show(self, hits: Sequence[SearchHit], shown_before: int = 0, *, has_more: bool) -> Reply:
        """Return the reply that shows ``hits``, without the first ``shown_before`` of them.

        ``hits`` are all hits so far, including those that earlier replies have shown. ``has_more`` states whether the
        search has further hits.
        """
        options = {}
        for number, hit in enumerate(hits, 1):
            name = title(hit.channel)
            label = f"{one_line(hit.entry.title, 80)} · {name}" if hit.entry is not None else name
            command = SubscribeCommand(without_selector(hit.channel.url), selector_of(hit.channel.url))
            options[str(number)] = Option(partial(subscribe, command=command), label)
        label = self.translator.gettext("Show more") if has_more else ""
        options["more"] = Option(partial(self._show_more, hits=hits), label)
        return Reply(self.describe(hits=hits, shown_before=shown_before, has_more=has_more), options=options)

    async def _show_more(self, requests: Requests, hits: Sequence[SearchHit]) -> Reply:
        """Return the reply that shows the next page after ``hits``, which are all the hits shown so far.

        The order of hits can differ from one search to the next. Therefore the search is repeated with a limit large
        enough for the earlier hits and a new page, and the earlier hits are left out.
        """
        found = await self.fetch(requests, 2 * len(hits) + self.size + 1)
        known = set(map(_identity, hits))
        new = [hit for hit in found if _identity(hit) not in known]
        return self.show([*hits, *new[: self.size]], len(hits), has_more=len(new) > self.size)


def _identity(hit: SearchHit) -> tuple[ChannelId, str]:
    return hit.channel.id, hit.entry.key if hit.entry is not None else ""


async def discover(requests: Requests, command: VerbCommand) -> Reply:
    """List popular or new public channels in the language and with the topic that the command names.

    If the command names no language, list channels in the user's language. If no channel is in the user's language,
    list channels in any language.
    """
    order, language, topic, is_plain = _discover_arguments(command.words)
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
    listing = texts.Listing(
        order,
        wanted,
        topic,
        is_own_language=not language and bool(wanted),
        languages=tuple(facet.value for facet in answer.languages),
        topics=tuple(facet.value for facet in answer.topics),
        new_count=len(new),
    )

    async def fetch(requests: Requests, limit: int) -> Sequence[SearchHit]:
        return (await requests.discover(order, wanted, topic, limit)).hits

    pages = _Pages(
        RESULTS_AT_ONCE, fetch, partial(texts.listing_text, listing, requests.translator), requests.translator
    )
    return pages.show((*answer.hits, *new), has_more=answer.has_more)


async def watch(requests: Requests, command: VerbCommand) -> Reply:
    """Save a search, and show what it would have found in the last few days.

    If the search has many matches, ask the user to confirm it before saving it. If the command has no words, list the
    saved searches.
    """
    text = command.words
    if not text.strip():
        return Reply(texts.saved_search_list(await requests.watches(), requests.translator))
    if "=" not in text and looks_like_url(text):
        return _suggest_subscribing(text, requests.translator)
    condition, saved_text = parse_watch(text), saved_search_text(text)
    preview = await _preview(requests, condition)
    if preview is not None and preview.count > MANY_MATCHES_PER_DAY * PREVIEW_DAYS:
        save = partial(_save_search, condition=condition, text=saved_text, preview=None)
        return Reply(texts.confirm_search_text(saved_text, preview, requests.translator), options={"yes": Option(save)})
    return await _save_search(requests, condition, saved_text, preview)


async def _save_search(
    requests: Requests, condition: SearchCondition, text: str, preview: texts.SearchPreview | None
) -> Reply:
    return Reply(texts.search_saved_text(await requests.watch(condition, text), preview, requests.translator))


async def unwatch(requests: Requests, command: VerbCommand) -> Reply:
    """Delete the saved search whose number the command contains."""
    translator = requests.translator
    if not command.target.number:
        return missing_argument("unwatch", translator)
    deleted = await requests.unwatch(command.target.number)
    if deleted is None:
        return failure(
            translator.gettext("You have no saved search with that number. `watch` lists the ones you have.")
        )
    return Reply(translator.gettext("Deleted your saved search: {query}", query=one_line(deleted.text, 300)))


async def _preview(requests: Requests, condition: SearchCondition) -> texts.SearchPreview | None:
    """Return what a saved search would have found in the last few days, or None if this cannot be determined.

    The result is None if the condition is a regular expression, or if the search fails because the cells that store the
    search index change too often.
    """
    if not isinstance(condition, QueryCondition):
        return None  # there is no index for regular expressions
    query = Query("entry", condition.all_of, condition.none_of, limit=MANY_MATCHES_PER_DAY * PREVIEW_DAYS + 1)
    with suppress(CellsUnavailable):
        answer = await requests.search(query)
        # A saved search finds no similar words, and requires all words.
        hits = () if answer.corrections else tuple(hit for hit in answer.hits if not hit.lacks_words)
        return texts.SearchPreview(len(hits), PREVIEW_DAYS, hits[:PREVIEW_EXAMPLES])
    return None


def _about_entries(query: Query) -> Query | None:
    """Convert ``query`` into a query for entries.

    Return None if ``query`` is already a query for entries, or has conditions that only channels can satisfy.
    """
    pairs = [each.pair for group in (*query.all_of, query.none_of) for each in group if isinstance(each, PairCondition)]
    if query.about == "entry" or any("entry" not in ATTRIBUTES[attribute_of(pair)].kinds for pair in pairs):
        return None
    return msgspec.structs.replace(query, about="entry")


_ANY: Final = "*"


def _discover_arguments(text: str) -> tuple[DiscoverOrder, str, str, bool]:
    """Parse the arguments of `discover`: an order, a language (its name, or ``lang:de``) and a topic, in any sequence.

    Return (order, language, topic, whether ``text`` is empty). The language is ``_ANY`` if the user wants all
    languages, and "" if the user names none. The topic is "" if the user names none.
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
