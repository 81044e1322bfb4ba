"""Replies to searches and listings of channels, and replies about saved searches."""

import re
from typing import Final

import msgspec

from bots.i18n.translator import Translator, gettext_noop
from bots.replies.base import FailureReply, QuestionReply, Reply, fit_rows, more, title
from bots.replies.help import HELP
from service.discovery.discover import DiscoverOrder
from service.discovery.queries.query import Correction, Query, SearchAnswer, SearchHit
from service.discovery.queries.query_parser import saved_search_text
from service.discovery.queries.saved_searches import PatternCondition, SavedSearch
from service.feeds.parsing.html_text import one_line
from service.feeds.urls import without_selector

_MAX_TOPICS: Final = 8
_MAX_ADDRESS_CHARS: Final = 60
_INDENT: Final = "\n    "
_LOWERCASE_OR = re.compile(r"\s(or|oder|ou|o)\s", re.IGNORECASE)


class SearchResults(QuestionReply, frozen=True):
    """The hits of a search, and the question to which of the channels the user wants to subscribe.

    Without hits, the reply suggests other searches. ``query_text`` is the query as the user wrote it. The hits of
    ``answer`` are all hits shown so far; earlier replies have shown the first ``shown_before`` of them. With
    ``are_instead_of_channels``, the hits are entries because no channel matches.
    """

    query_text: str
    query: Query
    answer: SearchAnswer
    shown_before: int = 0
    are_instead_of_channels: bool = False

    @property
    def hits(self) -> tuple[SearchHit, ...]:
        """All hits shown so far."""
        return self.answer.hits

    @property
    def has_more(self) -> bool:
        """Whether the search has further hits."""
        return self.answer.has_more

    def _text(self, translator: Translator) -> str:
        text = one_line(self.query_text, 200)
        if not self.hits:
            return " ".join([_no_hits(self.query, text, translator), *_alternatives(self.query, text, translator)])
        if self.shown_before == len(self.hits):
            return NoMoreResults().text(translator.language)
        rows = [f"{number}. {_hit(hit, translator)}" for number, hit in enumerate(self.hits, 1)]
        if 0 < self._complete_count < len(rows):
            some = translator.gettext("With some of the words:")
            rows[self._complete_count] = f"{some}\n{rows[self._complete_count]}"
        # Everybody is subscribed to their own private channels.
        offers = [] if all(hit.own for hit in self.hits) else [_subscribe_offer(self.hits, translator)]
        if self.has_more:
            offers.append(translator.gettext("`more` shows the next ones."))
        hints = [] if self._complete_count else _or_hints(self.query, text, translator)
        last = "\n".join(filter(None, [*hints, " ".join(offers)]))
        return fit_rows(self._head(text, translator), rows[self.shown_before :], translator, last)

    @property
    def _complete_count(self) -> int:
        """The number of hits that have all words of the query; these come first."""
        return sum(not hit.lacks_words for hit in self.hits)

    def _head(self, query: str, translator: Translator) -> str:
        count = self._complete_count
        if self.shown_before:
            return translator.gettext("More results for “{query}”:", query=query)
        if self.answer.corrections or not count:
            return self._head_of_similar(query, translator)
        if self.are_instead_of_channels:
            return translator.gettext("No channel matches “{query}”, but these entries do:", query=query)
        if self.has_more and count == len(self.hits):
            return translator.gettext("The best matches for “{query}”:", query=query)
        if self.query.about == "entry":
            return translator.ngettext(
                "{count} entry matches “{query}”:", "{count} entries match “{query}”:", count, query=query
            )
        return translator.ngettext(
            "{count} channel matches “{query}”:", "{count} channels match “{query}”:", count, query=query
        )

    def _head_of_similar(self, query: str, translator: Translator) -> str:
        """Return the first line if words were replaced, or nothing has all words."""
        corrected = _corrected(query, self.answer.corrections)
        if self._complete_count:
            return translator.gettext(
                "Nothing matches “{query}”. Results for “{corrected}”:", query=query, corrected=corrected
            )
        if self.answer.corrections:
            return translator.gettext(
                "Nothing has all the words of “{query}”. The best results for “{corrected}”:",
                query=query,
                corrected=corrected,
            )
        return translator.gettext("Nothing has all the words of “{query}”. The best with some of them:", query=query)


class NoMoreResults(Reply, frozen=True):
    """Says that there are no more hits: all hits of the last search were shown, or there was no search."""

    sentence = gettext_noop("There are no more results. `find` starts a new search, `discover` shows what's popular.")


class Listing(QuestionReply, frozen=True):
    """Public channels to browse, and the question to which of them the user wants to subscribe.

    ``hits`` are all channels shown so far; earlier replies have shown the first ``shown_before`` of them. The last
    ``new_count`` of them are new channels below popular ones. ``language`` and ``topic`` are what the listing is
    narrowed to, "" if it is not. ``languages`` and ``topics`` are those to which it can be narrowed. With
    ``is_own_language``, ``language`` is the user's, who has named none.
    """

    order: DiscoverOrder
    language: str
    topic: str
    hits: tuple[SearchHit, ...]
    shown_before: int = 0
    new_count: int = 0
    languages: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    has_more: bool = False
    is_own_language: bool = False

    def _text(self, translator: Translator) -> str:
        if not self.hits:
            return " ".join([self._empty(translator), *self._ways(translator)])
        if self.shown_before == len(self.hits):
            return NoMoreResults().text(translator.language)
        rows = [f"{number}. {_hit(hit, translator)}" for number, hit in enumerate(self.hits, 1)]
        first_new = len(rows) - self.new_count
        if self.new_count:
            new = translator.gettext("New:")
            rows[first_new] = f"{new}\n{rows[first_new]}"
        last = _subscribe_offer(self.hits, translator)
        if self.has_more:
            last = " ".join([last, translator.gettext("`more` shows the next ones.")])
        tail = "\n".join([*(self._ways(translator) if not self.shown_before else ()), last])
        return fit_rows(self._head(translator), rows[self.shown_before :], translator, tail)

    def _head(self, translator: Translator) -> str:
        names = [translator.language_name(self.language)] if self.language else []
        what = ", ".join([*names, *([one_line(self.topic, 60)] if self.topic else [])])
        match self.order, bool(what):
            case "new", True:
                return translator.gettext("New channels ({what}):", what=what)
            case "new", _:
                return translator.gettext("New channels:")
            case _, True:
                return translator.gettext("Popular channels ({what}):", what=what)
            case _:
                return translator.gettext("Popular channels:")

    def _empty(self, translator: Translator) -> str:
        if self.topic:
            topic = one_line(self.topic, 60)
            return translator.gettext(
                "No public channel has the topic “{topic}”; `find {topic}` also searches texts.", topic=topic
            )
        if self.language:
            return translator.gettext(
                "There's no public channel in this language yet: {language}.",
                language=translator.language_name(self.language),
            )
        return translator.gettext("There's nothing to discover yet. Send me the address of a site you like.")

    def _ways(self, translator: Translator) -> list[str]:
        """Return the sentences that name the topics and languages to which the listing can be narrowed."""
        topics = [topic for topic in self.topics if topic != self.topic][:_MAX_TOPICS]
        languages = [language for language in self.languages if language != self.language]
        ways = []
        if topics:
            ways.append(
                translator.gettext(
                    "Topics: {topics}. E.g. `discover {topic}`.", topics=", ".join(topics), topic=topics[0]
                )
            )
        if languages and len(self.languages) > 1:
            ways.append(
                translator.gettext(
                    "Languages: {languages}. E.g. `discover lang:{language}`.",
                    languages=", ".join(map(translator.language_name, languages)),
                    language=next((each for each in languages if each != translator.language), languages[0]),
                )
            )
        if self.is_own_language:
            ways.append(translator.gettext("Other languages: `discover all`."))
        return ways


class SearchPreview(msgspec.Struct, frozen=True):
    """What a saved search would have found in the last ``days`` days: ``count`` entries, some of them as examples."""

    count: int
    days: int
    examples: tuple[SearchHit, ...]

    def example_rows(self) -> list[str]:
        """Return a line for each example: its title, and that of its channel."""
        return [
            f"• {_bold(one_line(hit.entry.title or hit.entry.link, 200))} · {title(hit.channel)}"
            for hit in self.examples
            if hit.entry is not None
        ]


class SearchSaved(Reply, frozen=True):
    """Says that a search was saved, and what it would have found lately. ``preview`` is None if that is unknown."""

    watch: SavedSearch
    preview: SearchPreview | None = None

    def _text(self, translator: Translator) -> str:
        number = str(self.watch.number)
        head = translator.gettext("Saved as search #{number}: {query}", query=_query(self.watch), number=number)
        last = translator.gettext(
            "You'll get every new match from public channels. `unwatch #{number}` ends it.", number=number
        )
        if isinstance(self.watch.condition, PatternCondition) or self.preview is None:
            return f"{head}\n{last}"
        rows = self.preview.example_rows()
        found = translator.ngettext(
            "In the last {days} days it would have found {count} entry:",
            "In the last {days} days it would have found {count} entries:",
            self.preview.count,
            days=self.preview.days,
        )
        if not rows:
            found = translator.gettext("In the last {days} days it would have found nothing.", days=self.preview.days)
        others = [more(self.preview.count - len(rows), translator)] if rows and self.preview.count > len(rows) else []
        return "\n".join([head, found, *rows, *others, last])


class ConfirmWatch(QuestionReply, frozen=True):
    """Asks whether to save a search that has many matches; ``query_text`` is the search."""

    query_text: str
    preview: SearchPreview

    def _text(self, translator: Translator) -> str:
        head = translator.gettext(
            "That's a lot: in the last {days} days, “{query}” matched more than {count} entries, such as:",
            query=one_line(self.query_text, 200),
            days=self.preview.days,
            count=self.preview.count - 1,
        )
        last = translator.gettext(
            "To get fewer, add a word, a phrase in quotation marks, `lang:en` or `-word`. Or reply `yes` to save it as "
            "it is."
        )
        return "\n".join([head, *self.preview.example_rows(), last])


class SavedSearchList(Reply, frozen=True):
    """Lists the user's saved searches."""

    watches: tuple[SavedSearch, ...]

    def _text(self, translator: Translator) -> str:
        if not self.watches:
            return " ".join([translator.gettext("You have no saved searches."), HELP["watch"].full_text(translator)])
        rows = [f"#{watch.number} {_query(watch)}" for watch in self.watches]
        last = translator.gettext("`unwatch #{number}` deletes one.", number=str(self.watches[-1].number))
        return fit_rows(translator.gettext("Your saved searches:"), rows, translator, last)


class SavedSearchDeleted(Reply, frozen=True):
    """Says that a saved search was deleted."""

    watch: SavedSearch

    def _text(self, translator: Translator) -> str:
        return translator.gettext("Deleted the saved search {query}.", query=_query(self.watch))


class NoSuchSavedSearch(FailureReply, frozen=True):
    """Says that no saved search of the user has the number in the command."""

    sentence = gettext_noop("You have no saved search with that number. `watch` lists the ones you have.")


def _no_hits(query: Query, text: str, translator: Translator) -> str:
    if query.about == "entry":
        return translator.gettext("Nothing matches “{query}”.", query=text)
    return translator.gettext("No channel matches “{query}”.", query=text)


def _alternatives(query: Query, text: str, translator: Translator) -> list[str]:
    """Return the sentences that suggest other actions after a search without hits."""
    tries = _or_hints(query, text, translator)
    if tries:
        return tries
    if len(query.all_of) + len(query.none_of) > 1 or query.after is not None:
        tries.append(translator.gettext("Try fewer words or conditions."))
    if query.about == "entry":
        watch = f"watch {one_line(saved_search_text(text), 200)}"
        tries.append(translator.gettext("`{command}` saves this search and sends you new matches.", command=watch))
    elif not tries:
        tries.append(
            translator.gettext(
                "Try another word or `discover`, or send me the address of a site and I'll look for its feed."
            )
        )
    return tries


def _or_hints(query: Query, text: str, translator: Translator) -> list[str]:
    """Return a sentence about OR if the query has this word in small letters."""
    if not _LOWERCASE_OR.search(text) or any(len(group) > 1 for group in query.all_of):
        return []
    command = f"find {_LOWERCASE_OR.sub(' OR ', text)}"
    return [translator.gettext("For either word, write OR in capital letters: `{command}`.", command=command)]


def _corrected(text: str, corrections: tuple[Correction, ...]) -> str:
    """Return the query with its words replaced as they were for the search."""
    for correction in corrections:
        parts = re.split(rf"(?<!\w){re.escape(correction.word)}(?!\w)", text, flags=re.IGNORECASE)
        text = correction.replacement.join(parts)
    return text


def _subscribe_offer(hits: tuple[SearchHit, ...], translator: Translator) -> str:
    if len(hits) == 1:
        return translator.gettext("Reply `1` to subscribe.")
    if hits[0].entry is not None:
        return translator.gettext("Reply with a number to subscribe to the channel.")
    return translator.gettext("Reply with a number to subscribe.")


def _hit(hit: SearchHit, translator: Translator) -> str:
    """Return a hit as a few lines: the title and where it is from, the snippet, and the link of an entry."""
    if hit.entry is None:
        facts = [_bold(title(hit.channel)), _short_address(hit.channel.url)]
        if hit.own:
            facts.append(translator.gettext("private: only you see it here"))
        elif hit.subscribers:
            facts.append(translator.ngettext("{count} subscriber", "{count} subscribers", hit.subscribers))
        lines = [_snippet(hit)]
    else:
        facts = [_bold(one_line(hit.entry.title, 200) or translator.gettext("(untitled)")), title(hit.channel)]
        lines = [_snippet(hit), one_line(hit.entry.link, 2000)]
    return _INDENT.join([" · ".join(facts), *filter(None, lines)])


def _short_address(url: str) -> str:
    """Return a channel's URL without scheme and selector, cut to a readable length."""
    address = without_selector(url).partition("://")[2].removeprefix("www.")
    return one_line(address.removesuffix("/"), _MAX_ADDRESS_CHARS)


def _bold(text: str) -> str:
    """Return the text in bold type (XEP-0393), or unchanged if asterisks in it would prevent that."""
    return text if "*" in text else f"*{text}*"


def _snippet(hit: SearchHit) -> str:
    """Return the snippet with the words that were searched for in bold type (XEP-0393)."""
    text = hit.snippet
    if "*" in text:
        return one_line(text, 300)
    parts, place = [], 0
    for start, end in hit.hits:
        if start == 0 or text[start - 1].isspace():
            parts += [text[place:start], f"*{text[start:end]}*"]
            place = end
    return one_line("".join([*parts, text[place:]]), 300)


def _query(watch: SavedSearch) -> str:
    return one_line(watch.text, 300)
