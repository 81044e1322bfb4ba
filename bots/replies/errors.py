"""Each error of ``service.errors`` in words a person can act on. Pure."""

from typing import Final

from bots.i18n.translator import Voice, marked
from service import errors
from service.feeds.parsing.html_text import one_line


def sentence(error: errors.CoronetError, subject: str, voice: Voice) -> str:
    """Say what went wrong with ``subject`` (a URL on one line, or ""), and what to do."""
    status = error.status if isinstance(error, errors.BadStatus) else 0
    it = voice.say("“{words}”", words=subject) if subject else voice.say("it")
    return voice.say(
        _template(error, status),
        it=it,
        status=str(status),
        detail=one_line(voice.say(error.sentence, **error.values), 300),
    )


def outcome(code: str, voice: Voice) -> str:
    """Say in a few words how a poll ended that met the error with this code."""
    return voice.say(_OUTCOMES.get(code, _FAILING))


def _template(error: errors.CoronetError, status: int) -> str:
    for (low, high), words in _STATUSES.items():
        if low <= status <= high:
            return words
    return next(_SENTENCES[kind] for kind in type(error).__mro__ if kind in _SENTENCES)


_SENTENCES: Final[dict[type[errors.CoronetError], str]] = {
    errors.BadUrl: marked("I cannot watch that. {detail}"),
    errors.AddressRefused: marked(
        "I do not watch {it}: it is at, or leads to, an address or port that is not one of the "
        "public web's. Only what everybody can reach with a browser can be watched."
    ),
    errors.NotSubscribed: marked("You have no such subscription. `list` shows what you have."),
    errors.LimitReached: marked("{detail}"),
    errors.HostBlocked: marked("I cannot watch {it}: {detail}"),
    errors.BadQuery: marked("{detail}"),
    errors.HostNotFound: marked("I cannot find {it}. {detail} Is it spelled right?"),
    errors.Unreachable: marked("I cannot reach {it} just now. {detail} Try again later."),
    errors.TlsFailed: marked(
        "I do not read {it}: its server cannot prove that it is the right one, which only its "
        "publisher can repair. {detail}"
    ),
    errors.BadRedirect: marked(
        "I cannot follow {it}: its redirects lead in a circle, nowhere, or out of the public web. "
        "Try the address your browser ends at."
    ),
    errors.BadHttp: marked(
        "I cannot read {it}: its server answers with something garbled, which only its publisher can repair. {detail}"
    ),
    errors.TooLarge: marked("I cannot watch {it}: it is too large. I read up to 5 MB."),
    errors.EmptyBody: marked("I find nothing to watch at {it}. {detail}"),
    errors.NotAFeed: marked(
        "There is neither a feed nor a page I can read at {it}. Look there for an RSS or Atom link and send me that."
    ),
    errors.ListOfFeeds: marked(
        "{it} is a list of feeds (OPML). `import` with its address subscribes you to what is on it."
    ),
    errors.BrokenFeed: marked(
        "There is a feed at {it}, but it is broken and cannot be read. Its publisher has to repair it."
    ),
    errors.ParseKilled: marked("I cannot watch {it}: reading it takes more time or memory than I give one channel."),
    errors.StoreUnavailable: marked(
        "I cannot get at my memory just now, so nothing was changed. Please try again in a minute."
    ),
    errors.ParserBusy: marked("I am still reading other lists. Please send yours again in a minute."),
    errors.AssignmentPending: marked("How often {it} is looked at is just being settled. Ask again in half a minute."),
    errors.NoWorker: marked("No worker is free to look at {it} just now. Please try again in a minute."),
    errors.PublisherError: marked("I cannot watch {it}: {detail}"),
    errors.OperationalError: marked(
        "Something on my side failed, so nothing was changed. Please try again in a minute."
    ),
    errors.CoronetError: marked("That did not work. {detail}"),
}

_STATUSES: Final = {
    (401, 401): marked("I cannot watch {it}: it asks for a login (401), and I have none."),
    (403, 403): marked("I cannot watch {it}: its server forbids it (403)."),
    (404, 404): marked("There is nothing at {it}: its server says “not found” (404). Is it spelled right?"),
    (410, 410): marked("{it} is gone for good (410). Look for its new address."),
    (429, 429): marked("I cannot look at {it} just now: its server wants fewer requests (429). Try again later."),
    (500, 599): marked("I cannot look at {it} just now: its server is in trouble ({status}). Try again later."),
}

_FAILING: Final = marked("failing")
_OUTCOMES: Final = {
    errors.HostNotFound.code: marked("its host is not found"),
    errors.Unreachable.code: marked("not reachable"),
    errors.TlsFailed.code: marked("certificate not in order"),
    errors.BadStatus.code: marked("its server answers with an error"),
    errors.BadRedirect.code: marked("it redirects in circles"),
    errors.TooLarge.code: marked("too large"),
    errors.EmptyBody.code: marked("empty"),
    errors.NotAFeed.code: marked("nothing there that I can read"),
    errors.BrokenFeed.code: marked("broken feed"),
    errors.ParseKilled.code: marked("takes too long to read"),
    errors.AddressRefused.code: marked("moved to a private address"),
    errors.HostBlocked.code: marked("moved to a blocked host"),
}
