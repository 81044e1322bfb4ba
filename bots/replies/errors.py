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
    errors.BadUrl: marked("I can't use that address. {detail}"),
    errors.AddressRefused: marked(
        "I can't subscribe to {it}: it is at, or redirects to, an address or port outside the public web. I only "
        "check what anyone can open in a browser."
    ),
    errors.NotSubscribed: marked("I can't find that subscription. `list` shows the ones you have."),
    errors.LimitReached: marked("{detail}"),
    errors.HostBlocked: marked("I can't read {it}: {detail}"),
    errors.BadQuery: marked("{detail}"),
    errors.HostNotFound: marked("I can't find {it}. {detail} Is it spelled correctly?"),
    errors.Unreachable: marked("I can't reach {it} right now. {detail} Please try again later."),
    errors.TlsFailed: marked("I can't open a secure connection to {it}; only its publisher can fix that. {detail}"),
    errors.BadRedirect: marked(
        "I can't open {it}: its redirects go round in circles, lead nowhere, or leave the public web. Try the "
        "address that your browser ends up at."
    ),
    errors.BadHttp: marked(
        "I can't read {it}: its server sends an invalid response, and only its publisher can fix that. {detail}"
    ),
    errors.TooLarge: marked("I can't read {it}: it is larger than 5 MB, the maximum."),
    errors.EmptyBody: marked("There's nothing to read at {it}. {detail}"),
    errors.NotAFeed: marked(
        "I found neither a feed nor a readable page at {it}. Look for an RSS or Atom link there and send me that."
    ),
    errors.ListOfFeeds: marked(
        "{it} is a list of feeds (OPML). Send `import` and its address to subscribe to all of them."
    ),
    errors.BrokenFeed: marked(
        "There is a feed at {it}, but it's broken and I can't read it. Only its publisher can fix that."
    ),
    errors.ParseKilled: marked("I can't read {it}: that takes more time or memory than one channel may use."),
    errors.StoreUnavailable: marked(
        "The database is unavailable right now; nothing was changed. Please try again in a minute."
    ),
    errors.ParserBusy: marked("I'm still reading other lists. Please send yours again in a minute."),
    errors.AssignmentPending: marked("How often {it} is checked hasn't been decided yet. Ask again in half a minute."),
    errors.NoWorker: marked("No worker is free to check {it} right now. Please try again in a minute."),
    errors.PublisherError: marked("I can't read {it}: {detail}"),
    errors.OperationalError: marked(
        "Something went wrong on my side; nothing was changed. Please try again in a minute."
    ),
    errors.CoronetError: marked("That didn't work. {detail}"),
}

_STATUSES: Final = {
    (401, 401): marked("I can't read {it}: it asks for a login (401), and I don't have one."),
    (403, 403): marked("I can't read {it}: its server denies access (403)."),
    (404, 404): marked("There's nothing at {it}: its server says “not found” (404). Is the address spelled correctly?"),
    (410, 410): marked("{it} is gone for good (410). Look for its new address."),
    (429, 429): marked(
        "I can't check {it} right now: its server asks for fewer requests (429). Please try again later."
    ),
    (500, 599): marked("I can't check {it} right now: its server has a problem ({status}). Please try again later."),
}

_FAILING: Final = marked("failing")
_OUTCOMES: Final = {
    errors.HostNotFound.code: marked("host not found"),
    errors.Unreachable.code: marked("unreachable"),
    errors.TlsFailed.code: marked("invalid certificate"),
    errors.BadStatus.code: marked("server error"),
    errors.BadRedirect.code: marked("redirect loop"),
    errors.TooLarge.code: marked("too large"),
    errors.EmptyBody.code: marked("empty"),
    errors.NotAFeed.code: marked("no feed or readable page"),
    errors.BrokenFeed.code: marked("broken feed"),
    errors.ParseKilled.code: marked("takes too long to read"),
    errors.AddressRefused.code: marked("moved to a private address"),
    errors.HostBlocked.code: marked("moved to a blocked host"),
}
