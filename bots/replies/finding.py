"""What is said of searches, and of what is watched for."""

from bots import exchange as say
from bots.replies.help import HELP
from bots.replies.parts import address, entry_lines, fitted, title
from bots.voice import Voice
from service.discovery.grammar import Finding, Query, written
from service.discovery.standing import Topic, Watch
from service.feeds.text import one_line


def found(reply: say.Found, voice: Voice) -> str:
    """Number what was found, to be picked from; if nothing was, say what to try."""
    asked = one_line(reply.wanted, 200)
    if not reply.findings:
        return f"{_nothing(reply.query, asked, voice)} {_instead(reply.query, voice)}"
    rows = [
        f"{number}. {_finding(finding, voice)}"
        for number, finding in enumerate(reply.findings, 1)
        if number > reply.before
    ]  # fmt: skip
    last = voice.say("Answer with a number to subscribe to it.")
    if reply.more:
        last = " ".join([last, voice.say("`more` shows others.")])
    return fitted(_head(reply, asked, voice), rows, voice, last)


def _nothing(query: Query, asked: str, voice: Voice) -> str:
    if query.about == "entry":
        return voice.say("I know no article like that: {asked}.", asked=asked)
    return voice.say("I know no channel like that: {asked}.", asked=asked)


def _head(reply: say.Found, asked: str, voice: Voice) -> str:
    match reply.query.about, bool(reply.before):
        case "entry", False:
            return voice.say("These are the articles I know: {asked}", asked=asked)
        case "entry", True:
            return voice.say("More articles I know: {asked}", asked=asked)
        case _, False:
            return voice.say("These are the channels I know: {asked}", asked=asked)
        case _:
            return voice.say("More channels I know: {asked}", asked=asked)


def _instead(query: Query, voice: Voice) -> str:
    """Return what to try where nothing was found."""
    tries = [voice.say("Try fewer conditions.")] if len(query.pairs) > 1 else []
    if query.about == "entry":
        watch = f"watch {written(Topic(query.pairs))}"
        tries.append(voice.say("`{command}` tells you when there is one.", command=watch))
    elif not tries:
        tries.append(
            voice.say(
                "Another word or tag may do, or send me the address of a site that has it: I look for its feed."
            )
        )  # fmt: skip
    return " ".join(tries)


def _finding(finding: Finding, voice: Voice) -> str:
    if finding.entry is None:
        name = title(finding.channel)
        if finding.own:
            name = voice.say("{title} (yours; others do not find it)", title=name)
        return f"{name}\n    {one_line(address(finding.channel), 200)}"
    where = voice.say("in {title}", title=title(finding.channel))
    return f"{entry_lines(finding.entry, voice)}\n    {where}"


def nothing_more(_reply: say.NothingMore, voice: Voice) -> str:
    """Say that all has been shown."""
    return voice.say("There is nothing more. `find` begins a new search.")


def watching(reply: say.Watching, voice: Voice) -> str:
    """Say what is watched for from now on, and how to end it."""
    return voice.say(
        "I watch for {watched} from now on (#{number}), in all channels that several people follow. "
        "`unwatch #{number}` ends it.",
        watched=_watched(reply.watch),
        number=str(reply.watch.number),
    )


def watches(reply: say.Watches, voice: Voice) -> str:
    """Name what is watched for."""
    if not reply.watches:
        return " ".join([voice.say("You watch for nothing."), HELP["watch"].all(voice)])
    rows = [f"#{watch.number} {_watched(watch)}" for watch in reply.watches]
    return fitted(voice.say("You watch for:"), rows, voice)


def unwatched(reply: say.Unwatched, voice: Voice) -> str:
    """Say what is watched for no more."""
    return voice.say("I watch for {watched} no more.", watched=_watched(reply.watch))


def no_such_watch(_reply: say.NoSuchWatch, voice: Voice) -> str:
    """Answer for what is not there and for what is not theirs."""
    return voice.say("You watch for nothing of that number. `watch` shows what you watch for.")


def _watched(watch: Watch) -> str:
    return one_line(written(watch.standing), 300)
