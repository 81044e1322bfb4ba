"""Replies about searches, and about what is watched for."""

from bots.i18n.translator import Voice, marked
from bots.replies.base import Question, Refusal, Reply, address, entry_lines, fitted, title
from bots.replies.help import HELP
from service.discovery.query_parser import Query, SearchHit, format_condition
from service.discovery.saved_searches import PairsCondition, SavedSearch
from service.feeds.parsing.html_text import one_line


class Found(Question, frozen=True):
    """Asks to which of these to subscribe: ``findings`` were shown so far, the first ``before`` of them earlier.

    ``wanted`` is what the person wrote; ``more``: there are others. If nothing was found, it says what to try.
    """

    wanted: str
    query: Query
    findings: tuple[SearchHit, ...]
    before: int
    more: bool

    def _text(self, voice: Voice) -> str:
        asked = one_line(self.wanted, 200)
        if not self.findings:
            return f"{_nothing(self.query, asked, voice)} {_instead(self.query, voice)}"
        rows = [f"{number}. {_finding(finding, voice)}" for number, finding in enumerate(self.findings, 1)]
        last = voice.say("Reply with a number to subscribe.")
        if self.more:
            last = " ".join([last, voice.say("`more` shows the next ones.")])
        return fitted(self._head(asked, voice), rows[self.before :], voice, last)

    def _head(self, query: str, voice: Voice) -> str:
        count = len(self.findings)
        match self.query.about, bool(self.before), self.more:
            case "entry", True, _:
                return voice.say("More entries matching “{query}”:", query=query)
            case _, True, _:
                return voice.say("More channels matching “{query}”:", query=query)
            case "entry", _, True:
                return voice.say("Entries matching “{query}”:", query=query)
            case _, _, True:
                return voice.say("Channels matching “{query}”:", query=query)
            case "entry", _, _:
                return voice.many(
                    "{count} entry matches “{query}”:", "{count} entries match “{query}”:", count, query=query
                )
            case _:
                return voice.many(
                    "{count} channel matches “{query}”:", "{count} channels match “{query}”:", count, query=query
                )


class NothingMore(Reply, frozen=True):
    """All that was found has been shown, or nothing was asked for."""

    sentence = marked("There are no more results. `find` starts a new search.")


class Watching(Reply, frozen=True):
    """It is watched for from now on."""

    watch: SavedSearch

    def _text(self, voice: Voice) -> str:
        return voice.say(
            "Saved as search #{number}: {query}. You'll get every new entry in public channels that matches it. "
            "`unwatch #{number}` deletes it.",
            query=_watched(self.watch),
            number=str(self.watch.number),
        )


class Watches(Reply, frozen=True):
    """What a person watches for."""

    watches: tuple[SavedSearch, ...]

    def _text(self, voice: Voice) -> str:
        if not self.watches:
            return " ".join([voice.say("You have no saved searches."), HELP["watch"].all(voice)])
        rows = [f"#{watch.number} {_watched(watch)}" for watch in self.watches]
        return fitted(voice.say("Your saved searches:"), rows, voice)


class Unwatched(Reply, frozen=True):
    """It is watched for no more."""

    watch: SavedSearch

    def _text(self, voice: Voice) -> str:
        return voice.say("Deleted the saved search {query}.", query=_watched(self.watch))


class NoSuchWatch(Refusal, frozen=True):
    """Not found, or not yours: one answer for both."""

    sentence = marked("You have no saved search with that number. `watch` lists the ones you have.")


def _nothing(query: Query, asked: str, voice: Voice) -> str:
    if query.about == "entry":
        return voice.say("No entry matches “{query}”.", query=asked)
    return voice.say("No channel matches “{query}”.", query=asked)


def _instead(query: Query, voice: Voice) -> str:
    """Return what to try where nothing was found."""
    tries = [voice.say("Try fewer conditions.")] if len(query.pairs) > 1 else []
    if query.about == "entry":
        watch = f"watch {format_condition(PairsCondition(query.pairs))}"
        tries.append(voice.say("`{command}` saves this search and sends you new matches.", command=watch))
    elif not tries:
        tries.append(voice.say("Try another word or tag, or send me the address of a site and I'll look for its feed."))
    return " ".join(tries)


def _finding(finding: SearchHit, voice: Voice) -> str:
    if finding.entry is None:
        name = title(finding.channel)
        if finding.own:
            name = voice.say("{title} · private: only you see it here", title=name)
        return f"{name}\n    {one_line(address(finding.channel), 200)}"
    where = voice.say("in {title}", title=title(finding.channel))
    return f"{entry_lines(finding.entry, voice)}\n    {where}"


def _watched(watch: SavedSearch) -> str:
    return one_line(format_condition(watch.condition), 300)
