"""Replies to searches for channels, and replies about saved searches."""

from bots.i18n.translator import Translator, gettext_noop
from bots.replies.base import FailureReply, QuestionReply, Reply, address, entry_lines, fit_rows, title
from bots.replies.help import HELP
from service.discovery.query import Query, SearchHit
from service.discovery.query_parser import saved_search_text
from service.discovery.saved_searches import SavedSearch
from service.feeds.parsing.html_text import one_line


class SearchResults(QuestionReply, frozen=True):
    """The hits of a search, and the question to which of the hits the user wants to subscribe.

    Without hits, the reply suggests other searches. ``query_text`` is the query as the user wrote it. ``hits`` are all
    hits shown so far; earlier replies have shown the first ``shown_before`` of them. ``has_more`` states whether the
    search has further hits.
    """

    query_text: str
    query: Query
    hits: tuple[SearchHit, ...]
    shown_before: int
    has_more: bool

    def _text(self, translator: Translator) -> str:
        text = one_line(self.query_text, 200)
        if not self.hits:
            return f"{_no_hits(self.query, text, translator)} {_alternatives(self.query, self.query_text, translator)}"
        rows = [f"{number}. {_hit(hit, translator)}" for number, hit in enumerate(self.hits, 1)]
        last = translator.gettext("Reply with a number to subscribe.")
        if self.has_more:
            last = " ".join([last, translator.gettext("`more` shows the next ones.")])
        return fit_rows(self._head(text, translator), rows[self.shown_before :], translator, last)

    def _head(self, query: str, translator: Translator) -> str:
        count = len(self.hits)
        match self.query.about, bool(self.shown_before), self.has_more:
            case "entry", True, _:
                return translator.gettext("More entries matching “{query}”:", query=query)
            case _, True, _:
                return translator.gettext("More channels matching “{query}”:", query=query)
            case "entry", _, True:
                return translator.gettext("Entries matching “{query}”:", query=query)
            case _, _, True:
                return translator.gettext("Channels matching “{query}”:", query=query)
            case "entry", _, _:
                return translator.ngettext(
                    "{count} entry matches “{query}”:", "{count} entries match “{query}”:", count, query=query
                )
            case _:
                return translator.ngettext(
                    "{count} channel matches “{query}”:", "{count} channels match “{query}”:", count, query=query
                )


class NoMoreResults(Reply, frozen=True):
    """Says that there are no more hits: all hits of the last search were shown, or there was no search."""

    sentence = gettext_noop("There are no more results. `find` starts a new search.")


class SearchSaved(Reply, frozen=True):
    """Says that a search was saved, and will send entries that match it."""

    watch: SavedSearch

    def _text(self, translator: Translator) -> str:
        return translator.gettext(
            "Saved as search #{number}: {query}. You'll get every new entry in public channels that matches it. "
            "`unwatch #{number}` deletes it.",
            query=_condition(self.watch),
            number=str(self.watch.number),
        )


class SavedSearchList(Reply, frozen=True):
    """Lists the user's saved searches."""

    watches: tuple[SavedSearch, ...]

    def _text(self, translator: Translator) -> str:
        if not self.watches:
            return " ".join([translator.gettext("You have no saved searches."), HELP["watch"].full_text(translator)])
        rows = [f"#{watch.number} {_condition(watch)}" for watch in self.watches]
        return fit_rows(translator.gettext("Your saved searches:"), rows, translator)


class SavedSearchDeleted(Reply, frozen=True):
    """Says that a saved search was deleted."""

    watch: SavedSearch

    def _text(self, translator: Translator) -> str:
        return translator.gettext("Deleted the saved search {query}.", query=_condition(self.watch))


class NoSuchSavedSearch(FailureReply, frozen=True):
    """Says that no saved search of the user has the number in the command."""

    sentence = gettext_noop("You have no saved search with that number. `watch` lists the ones you have.")


def _no_hits(query: Query, text: str, translator: Translator) -> str:
    if query.about == "entry":
        return translator.gettext("No entry matches “{query}”.", query=text)
    return translator.gettext("No channel matches “{query}”.", query=text)


def _alternatives(query: Query, text: str, translator: Translator) -> str:
    """Return the sentences that suggest other actions after a search without hits."""
    tries = [translator.gettext("Try fewer conditions.")] if len(query.all_of) + len(query.none_of) > 1 else []
    if query.about == "entry":
        watch = f"watch {one_line(saved_search_text(text), 200)}"
        tries.append(translator.gettext("`{command}` saves this search and sends you new matches.", command=watch))
    elif not tries:
        tries.append(
            translator.gettext("Try another word or tag, or send me the address of a site and I'll look for its feed.")
        )
    return " ".join(tries)


def _hit(hit: SearchHit, translator: Translator) -> str:
    if hit.entry is None:
        name = title(hit.channel)
        if hit.own:
            name = translator.gettext("{title} · private: only you see it here", title=name)
        return f"{name}\n    {one_line(address(hit.channel), 200)}"
    where = translator.gettext("in {title}", title=title(hit.channel))
    return f"{entry_lines(hit.entry, translator)}\n    {where}"


def _condition(watch: SavedSearch) -> str:
    return one_line(watch.text, 300)
