"""Texts about the ways to read elsewhere: Atom feeds and webhooks."""

from typing import Final

from bots.i18n.translator import Translator, gettext_noop

FEED: Final = gettext_noop(
    "Keep this address to yourself, because whoever knows it can read all your feeds. `atom new` replaces it, and "
    "`atom off` ends it."
)
PUBLIC_FEED: Final = gettext_noop("To share the feed with others, use this address instead: {url}")
FEEDS_ENDED: Final = gettext_noop("The addresses of your feeds no longer work. `atom` makes new ones.")
NO_PUBLIC_URL: Final = gettext_noop(
    "I can't offer feeds, because the console has no public address. Whoever runs this bot can set it "
    "(`console_public_url`)."
)
NO_FOLDER: Final = gettext_noop("You have no folder “{words}”. `atom #3` shows the feed of one subscription.")
NO_WEBHOOK: Final = gettext_noop("You have no webhook. `webhook https://example.org/hook` sets one.")
WEBHOOK_OFF: Final = gettext_noop("I've ended your webhook. `webhook https://example.org/hook` sets a new one.")
NO_WEBHOOK_IN_ROOMS: Final = gettext_noop("A webhook is for one person: please send me this command directly.")
NO_HTTPS: Final = gettext_noop("A webhook needs an https address, e.g. `webhook https://example.org/hook`.")
NEW_WEBHOOK: Final = gettext_noop(
    "From now on, I also post everything new to {url}. With this secret you can check my signatures; I won't show it "
    "again: {secret}"
)
WEBHOOK_ENDED: Final = gettext_noop(
    "I've ended your webhook {url}, because it's gone or hasn't worked for two weeks: {detail} `webhook URL` sets a "
    "new one."
)
WEBHOOK_FAILING: Final = gettext_noop(
    "Your webhook {url} hasn't worked for a day: {detail} I keep trying, but it won't get updates that are older than "
    "a day. You still get everything here."
)


def webhook_text(url: str, error: str, waiting: int, translator: Translator) -> str:
    """Return the text about the state of the webhook with this URL, for which ``waiting`` items wait.

    ``error`` states why the last request failed; "" if it did not.
    """
    if not error:
        return translator.gettext("I post everything new to your webhook {url}.", url=url)
    return translator.ngettext(
        "Your webhook {url} doesn't work: {detail} I keep trying; {count} update is waiting.",
        "Your webhook {url} doesn't work: {detail} I keep trying; {count} updates are waiting.",
        waiting,
        url=url,
        detail=error,
    )
