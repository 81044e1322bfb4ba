"""Replies about searches, and about what is watched for."""

from bots.i18n.translator import Translator, gettext_noop
from bots.replies.base import FailureReply, QuestionReply, Reply, address, entry_lines, fit_rows, title
from bots.replies.help import HELP
from service.discovery.query_parser import Query, SearchHit, format_condition
from service.discovery.saved_searches import PairsCondition, SavedSearch
from service.feeds.parsing.html_text import one_line


class SearchResults(QuestionReply, frozen=True):
    """Asks to which of these to subscribe: ``findings`` were shown so far, the first ``before`` of them earlier.

    ``wanted`` is what the person wrote; ``more``: there are others. If nothing was found, it says what to try.
    """

    wanted: str
    query: Query
    findings: tuple[SearchHit, ...]
    before: int
    more: bool

    def _text(self, translator: Translator) -> str:
        asked = one_line(self.wanted, 200)
        if not self.findings:
            return f"{_nothing(self.query, asked, translator)} {_instead(self.query, translator)}"
        rows = [f"{number}. {_finding(finding, translator)}" for number, finding in enumerate(self.findings, 1)]
        last = translator.gettext("Reply with a number to subscribe.")
        if self.more:
            last = " ".join([last, translator.gettext("`more` shows the next ones.")])
        return fit_rows(self._head(asked, translator), rows[self.before :], translator, last)

    def _head(self, query: str, translator: Translator) -> str:
        count = len(self.findings)
        match self.query.about, bool(self.before), self.more:
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
    """All that was found has been shown, or nothing was asked for."""

    sentence = gettext_noop("There are no more results. `find` starts a new search.")


class SearchSaved(Reply, frozen=True):
    """It is watched for from now on."""

    watch: SavedSearch

    def _text(self, translator: Translator) -> str:
        return translator.gettext(
            "Saved as search #{number}: {query}. You'll get every new entry in public channels that matches it. "
            "`unwatch #{number}` deletes it.",
            query=_watched(self.watch),
            number=str(self.watch.number),
        )


class SavedSearchList(Reply, frozen=True):
    """What a person watches for."""

    watches: tuple[SavedSearch, ...]

    def _text(self, translator: Translator) -> str:
        if not self.watches:
            return " ".join([translator.gettext("You have no saved searches."), HELP["watch"].all(translator)])
        rows = [f"#{watch.number} {_watched(watch)}" for watch in self.watches]
        return fit_rows(translator.gettext("Your saved searches:"), rows, translator)


class SavedSearchDeleted(Reply, frozen=True):
    """It is watched for no more."""

    watch: SavedSearch

    def _text(self, translator: Translator) -> str:
        return translator.gettext("Deleted the saved search {query}.", query=_watched(self.watch))


class NoSuchSavedSearch(FailureReply, frozen=True):
    """Not found, or not yours: one answer for both."""

    sentence = gettext_noop("You have no saved search with that number. `watch` lists the ones you have.")


def _nothing(query: Query, asked: str, translator: Translator) -> str:
    if query.about == "entry":
        return translator.gettext("No entry matches “{query}”.", query=asked)
    return translator.gettext("No channel matches “{query}”.", query=asked)


def _instead(query: Query, translator: Translator) -> str:
    """Return what to try where nothing was found."""
    tries = [translator.gettext("Try fewer conditions.")] if len(query.pairs) > 1 else []
    if query.about == "entry":
        watch = f"watch {format_condition(PairsCondition(query.pairs))}"
        tries.append(translator.gettext("`{command}` saves this search and sends you new matches.", command=watch))
    elif not tries:
        tries.append(
            translator.gettext("Try another word or tag, or send me the address of a site and I'll look for its feed.")
        )
    return " ".join(tries)


def _finding(finding: SearchHit, translator: Translator) -> str:
    if finding.entry is None:
        name = title(finding.channel)
        if finding.own:
            name = translator.gettext("{title} · private: only you see it here", title=name)
        return f"{name}\n    {one_line(address(finding.channel), 200)}"
    where = translator.gettext("in {title}", title=title(finding.channel))
    return f"{entry_lines(finding.entry, translator)}\n    {where}"


def _watched(watch: SavedSearch) -> str:
    return one_line(format_condition(watch.condition), 300)
