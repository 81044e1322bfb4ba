"""Texts that explain the errors in :mod:`service.errors` to users.

Each text states what has failed, which URL was involved, and what the user can do.
"""

from typing import Final

from bots.i18n.translator import Translator, gettext_noop
from service import errors
from service.feeds.parsing.html_text import one_line


def error_text(error: errors.CoronetError, subject: str, translator: Translator) -> str:
    """Return a message about an error. ``subject`` is the URL that the error is about, on one line, or ""."""
    status = error.status if isinstance(error, errors.BadStatus) else 0
    it = translator.gettext("“{words}”", words=subject) if subject else translator.gettext("it")
    text = translator.gettext(
        _template(error, status),
        it=it,
        status=str(status),
        detail=one_line(translator.gettext(error.sentence, **error.values), 300),
    )
    return text if subject else f"{text[:1].upper()}{text[1:]}"


def outcome_text(code: str, translator: Translator) -> str:
    """Describe the outcome of a failed poll in a few words; ``code`` is the code of the error that occurred."""
    return translator.gettext(_OUTCOMES.get(code, _FAILING))


def _template(error: errors.CoronetError, status: int) -> str:
    for (low, high), words in _STATUSES.items():
        if low <= status <= high:
            return words
    return next(_SENTENCES[kind] for kind in type(error).__mro__ if kind in _SENTENCES)


_SENTENCES: Final[dict[type[errors.CoronetError], str]] = {
    errors.BadUrl: gettext_noop("I can't use that address. {detail}"),
    errors.AddressRefused: gettext_noop(
        "I can't subscribe to {it}: its address isn't part of the public web, or it redirects to one that isn't. I "
        "only check what anyone can open in a browser."
    ),
    errors.PortRefused: gettext_noop("I can't read {it}. {detail}"),
    errors.NotSubscribed: gettext_noop("I can't find that subscription. `list` shows the ones you have."),
    errors.LimitReached: gettext_noop("{detail}"),
    errors.HostBlocked: gettext_noop("I can't read {it}: {detail}"),
    errors.BadQuery: gettext_noop("{detail}"),
    errors.HostNotFound: gettext_noop("I can't find {it}. {detail} Is the address spelled correctly?"),
    errors.Unreachable: gettext_noop("I can't reach {it} right now. {detail} Please try again later."),
    errors.TlsFailed: gettext_noop(
        "I can't open a secure connection to {it}. {detail} Only its publisher can fix that."
    ),
    errors.BadRedirect: gettext_noop(
        "I can't open {it}: it redirects in circles, to nowhere, or out of the public web. Try the address your "
        "browser ends up at."
    ),
    errors.BadHttp: gettext_noop(
        "I can't read {it}: its server's answer makes no sense to me. {detail} Only its publisher can fix that."
    ),
    errors.TooLarge: gettext_noop("I can't read {it}: it's larger than 5 MB, which is the most I can handle."),
    errors.EmptyBody: gettext_noop("There's nothing to read at {it}. {detail}"),
    errors.NotAFeed: gettext_noop(
        "I found neither a feed nor a readable page at {it}. Look for an RSS or Atom link there and send me that."
    ),
    errors.ListOfFeeds: gettext_noop(
        "{it} is a list of feeds (OPML). Send `import` and its address to subscribe to all of them."
    ),
    errors.BrokenFeed: gettext_noop(
        "There is a feed at {it}, but it's broken and I can't read it. Only its publisher can fix that."
    ),
    errors.ParseKilled: gettext_noop("I can't read {it}: it's too big or too complicated for me."),
    errors.StoreUnavailable: gettext_noop(
        "The database is unavailable right now; nothing was changed. Please try again in a minute."
    ),
    errors.ParserBusy: gettext_noop("I'm still reading other lists. Please send yours again in a minute."),
    errors.AssignmentPending: gettext_noop(
        "I haven't worked out yet how often to check {it}. Please ask again in 10 seconds."
    ),
    errors.NoWorker: gettext_noop(
        "I couldn't check {it} because none of my workers is free right now. Please try again in a minute."
    ),
    errors.PublisherError: gettext_noop("I can't read {it}: {detail}"),
    errors.OperationalError: gettext_noop(
        "Something went wrong on my side; nothing was changed. Please try again in a minute."
    ),
    errors.CoronetError: gettext_noop("That didn't work. {detail}"),
}

_STATUSES: Final = {
    (401, 401): gettext_noop(
        "I can't read {it}: it asks for a login (401). To give me one, send `subscribe URL login NAME PASSWORD`; `help "
        "subscribe` shows other ways."
    ),
    (403, 403): gettext_noop("I can't read {it}: its server won't let me in (403)."),
    (404, 404): gettext_noop(
        "There's nothing at {it}: its server says “not found” (404). Is the address spelled correctly?"
    ),
    (410, 410): gettext_noop("{it} is gone for good (410). Perhaps its publisher's site says where it is now."),
    (429, 429): gettext_noop(
        "I can't check {it} right now: its server says it's getting too many requests (429). Please try again later."
    ),
    (500, 599): gettext_noop(
        "I can't check {it} right now: its server has a problem ({status}). Please try again later."
    ),
}

_FAILING: Final = gettext_noop("failing")
_OUTCOMES: Final = {
    errors.HostNotFound.code: gettext_noop("host not found"),
    errors.Unreachable.code: gettext_noop("unreachable"),
    errors.TlsFailed.code: gettext_noop("invalid certificate"),
    errors.BadStatus.code: gettext_noop("server error"),
    errors.BadRedirect.code: gettext_noop("redirect loop"),
    errors.TooLarge.code: gettext_noop("too large"),
    errors.EmptyBody.code: gettext_noop("empty"),
    errors.NotAFeed.code: gettext_noop("no feed or readable page"),
    errors.BrokenFeed.code: gettext_noop("broken feed"),
    errors.ParseKilled.code: gettext_noop("takes too long to read"),
    errors.AddressRefused.code: gettext_noop("moved to a private address"),
    errors.PortRefused.code: gettext_noop("port not allowed"),
    errors.HostBlocked.code: gettext_noop("moved to a blocked host"),
}
