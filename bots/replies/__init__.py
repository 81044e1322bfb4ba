"""Reply → text: short, plain first, with XEP-0393 styling and the next useful step. Pure.

A file per topic, a function per reply, which says it with a :class:`~bots.voice.Voice`. What a publisher or a user
wrote is put on one line, stripped of what XML 1.0 forbids and of what reverses or hides text, before it stands in a
message.
"""

from collections.abc import Callable
from typing import Any, Final

from bots import exchange as say
from bots.length import LONGEST_MESSAGE_BYTES, clip
from bots.replies import carrying, finding, help, looking, preferring, settings, subscribing, talking  # noqa: A004 - named for its topic
from bots.voice import Voice, voice


def text(reply: say.Reply, now_s: float, language: str) -> str:
    """Return the message that says this; never empty, valid XML 1.0, at most 4 kB. ``now_s``: Unix time."""
    speaker = voice(language)
    timed = _TIMED.get(type(reply))
    said = timed(reply, speaker, now_s) if timed is not None else _WRITERS[type(reply)](reply, speaker)
    return clip(said, LONGEST_MESSAGE_BYTES)


def others(reply: say.Reply, language: str) -> tuple[str, ...]:
    """Return the messages that follow a reply's text, each valid XML 1.0 and at most 4 kB."""
    match reply:
        case say.Exported():
            return tuple(filter(None, (*reply.documents[1:], carrying.refused(reply, voice(language)))))
        case say.ExportedAsFile(url):
            return (url,)
        case _:
            return ()


_WRITERS: Final[dict[type[Any], Callable[[Any, Voice], str]]] = {
    say.Subscribed: subscribing.subscribed,
    say.Choose: subscribing.choose,
    say.OfferPage: subscribing.offer_page,
    say.Confirm: subscribing.confirm,
    say.Unsubscribed: subscribing.unsubscribed,
    say.NoSuchSubscription: subscribing.no_such_subscription,
    say.SubscriptionsFull: subscribing.subscriptions_full,
    say.NewUrlsUsedUp: subscribing.new_urls_used_up,
    say.Listing: looking.listing,
    say.Shown: looking.shown,
    say.Found: finding.found,
    say.WhichOne: subscribing.which_one,
    say.ForgottenMessage: subscribing.forgotten_message,
    say.NothingMore: finding.nothing_more,
    say.Watching: finding.watching,
    say.Watches: finding.watches,
    say.Unwatched: finding.unwatched,
    say.NoSuchWatch: finding.no_such_watch,
    say.UnreadableTime: settings.unreadable_time,
    say.NoSuchZone: settings.no_such_zone,
    say.LanguageTold: settings.language_told,
    say.NoSuchLanguage: settings.no_such_language,
    say.ReallyForget: talking.really_forget,
    say.Exported: carrying.exported,
    say.ExportedAsFile: carrying.exported_as_file,
    say.ImportBegun: carrying.import_begun,
    say.Imported: carrying.imported,
    say.Forgotten: talking.forgotten,
    say.NotAdmitted: talking.not_admitted,
    say.Admitted: talking.admitted,
    say.Paused: preferring.paused,
    say.Resumed: preferring.resumed,
    say.Preferred: preferring.preferred,
    say.NoSuchSetting: preferring.no_such_setting,
    say.UnreadableSetting: preferring.unreadable_setting,
    say.Filters: preferring.filters,
    say.NoSuchFilter: preferring.no_such_filter,
    say.FiltersFull: preferring.filters_full,
    say.Explained: help.explained,
    say.Incomplete: help.incomplete,
    say.TooFast: talking.too_fast,
    say.OnlyManagers: talking.only_managers,
    say.LetBe: talking.let_be,
    say.Greeted: talking.greeted,
    say.KeepsQuiet: talking.keeps_quiet,
    say.NothingToCancel: talking.nothing_to_cancel,
    say.NothingAsked: talking.nothing_asked,
    say.DidYouMean: talking.did_you_mean,
    say.NotUnderstood: talking.not_understood,
    say.Failed: talking.failed,
}

_TIMED: Final[dict[type[Any], Callable[[Any, Voice, float], str]]] = {
    say.Reasoned: looking.reasoned,
    say.StatusReport: looking.status,
    say.HabitsTold: settings.habits_told,
}
