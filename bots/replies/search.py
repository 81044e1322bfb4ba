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
        last = voice.say("Answer with a number to subscribe to it.")
        if self.more:
            last = " ".join([last, voice.say("`more` shows others.")])
        return fitted(self._head(asked, voice), rows[self.before :], voice, last)

    def _head(self, asked: str, voice: Voice) -> str:
        match self.query.about, bool(self.before):
            case "entry", False:
                return voice.say("These are the articles I know: {asked}", asked=asked)
            case "entry", True:
                return voice.say("More articles I know: {asked}", asked=asked)
            case _, False:
                return voice.say("These are the channels I know: {asked}", asked=asked)
            case _:
                return voice.say("More channels I know: {asked}", asked=asked)


class NothingMore(Reply, frozen=True):
    """All that was found has been shown, or nothing was asked for."""

    sentence = marked("There is nothing more. `find` begins a new search.")


class Watching(Reply, frozen=True):
    """It is watched for from now on."""

    watch: SavedSearch

    def _text(self, voice: Voice) -> str:
        return voice.say(
            "I watch for {watched} from now on (#{number}), in all channels that several people follow. "
            "`unwatch #{number}` ends it.",
            watched=_watched(self.watch),
            number=str(self.watch.number),
        )


class Watches(Reply, frozen=True):
    """What a person watches for."""

    watches: tuple[SavedSearch, ...]

    def _text(self, voice: Voice) -> str:
        if not self.watches:
            return " ".join([voice.say("You watch for nothing."), HELP["watch"].all(voice)])
        rows = [f"#{watch.number} {_watched(watch)}" for watch in self.watches]
        return fitted(voice.say("You watch for:"), rows, voice)


class Unwatched(Reply, frozen=True):
    """It is watched for no more."""

    watch: SavedSearch

    def _text(self, voice: Voice) -> str:
        return voice.say("I watch for {watched} no more.", watched=_watched(self.watch))


class NoSuchWatch(Refusal, frozen=True):
    """Not found, or not yours: one answer for both."""

    sentence = marked("You watch for nothing of that number. `watch` shows what you watch for.")


def _nothing(query: Query, asked: str, voice: Voice) -> str:
    if query.about == "entry":
        return voice.say("I know no article like that: {asked}.", asked=asked)
    return voice.say("I know no channel like that: {asked}.", asked=asked)


def _instead(query: Query, voice: Voice) -> str:
    """Return what to try where nothing was found."""
    tries = [voice.say("Try fewer conditions.")] if len(query.pairs) > 1 else []
    if query.about == "entry":
        watch = f"watch {format_condition(PairsCondition(query.pairs))}"
        tries.append(voice.say("`{command}` tells you when there is one.", command=watch))
    elif not tries:
        tries.append(
            voice.say("Another word or tag may do, or send me the address of a site that has it: I look for its feed.")
        )
    return " ".join(tries)


def _finding(finding: SearchHit, voice: Voice) -> str:
    if finding.entry is None:
        name = title(finding.channel)
        if finding.own:
            name = voice.say("{title} (yours; others do not find it)", title=name)
        return f"{name}\n    {one_line(address(finding.channel), 200)}"
    where = voice.say("in {title}", title=title(finding.channel))
    return f"{entry_lines(finding.entry, voice)}\n    {where}"


def _watched(watch: SavedSearch) -> str:
    return one_line(format_condition(watch.condition), 300)
