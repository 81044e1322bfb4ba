"""What each command does, and the replies that explain it."""

from typing import Final

import msgspec

from bots.i18n.translator import Voice, marked
from bots.replies.base import Refusal, Reply


class Topic(msgspec.Struct, frozen=True):
    """One command: what it does, in a line without a full stop, and what else there is to know."""

    line: str
    more: str = ""

    def first(self, voice: Voice) -> str:
        """Return what it does."""
        return voice.say(self.line)

    def all(self, voice: Voice) -> str:
        """Return everything about it."""
        return f"{self.first(voice)}. {voice.say(self.more)}" if self.more else f"{self.first(voice)}."


HELP: Final = {
    "subscribe": Topic(
        marked("`subscribe URL` (or just the URL): follow a feed or a page"),
        marked(
            "A site's address is enough if the site links to its feed; if there is no feed, I can monitor the page "
            "itself. `subscribe URL SELECTOR` monitors one part of a page, given as a CSS selector: `subscribe "
            "example.org/prices #list` or `… main table`. `subscribe URL with mute=on title=My news` also applies "
            "settings (see `help set`). Also: sub, add, follow."
        ),
    ),
    "unsubscribe": Topic(
        marked("`unsubscribe #3` or `unsubscribe URL`: end a subscription"),
        marked("`unsubscribe all` ends them all; I'll ask first. Also: unsub, remove."),
    ),
    "list": Topic(
        marked("`list`: show your subscriptions and their numbers"),
        marked("`list news`: only those with “news” in the title or URL. Also: ls."),
    ),
    "find": Topic(
        marked("`find tag=python lang=en`: search for channels by topic"),
        marked(
            "You can also search for words in the title, and by author, host, domain, updates=daily and more. "
            "`type=entry` searches for entries, `limit 20` shows more at once, `more` shows the next results. "
            "Besides your own, you can find public channels: those that several people follow or an admin has "
            "listed."
        ),
    ),
    "watch": Topic(
        marked(
            '`watch tag=python`, `watch "a phrase"` or `watch /regular expression/`: save a search and get every '
            "new entry in public channels that matches it"
        ),
        marked("Each match says which saved search it is for. `watch` alone lists your saved searches."),
    ),
    "unwatch": Topic(
        marked("`unwatch #2`: delete a saved search"),
        marked("`watch` shows their numbers."),
    ),
    "show": Topic(
        marked("`show #3`: show the latest entries of a subscription"),
        marked("`show #3 10`: the latest ten."),
    ),
    "why": Topic(marked("`why #3`: explain how often a subscription is checked")),
    "status": Topic(marked("`status`: check that all your subscriptions can be reached")),
    "quiet": Topic(
        marked("`quiet 22:00-07:00`: set quiet hours; new entries wait until they end"),
        marked(
            "`quiet 22:00-07:00 mon-fri`, `… sat,sun`, `… weekends`: only on nights that begin on these days. "
            "`quiet off`: no quiet hours. `quiet presence`: nothing while you are away, busy or offline. Times are "
            "in your `timezone`."
        ),
    ),
    "digest": Topic(
        marked("`digest daily 08:00`: get one daily summary instead of single messages"),
        marked(
            "`digest hourly`, `digest weekly fri 17:00`: every hour, every week. `digest off`: new entries at once "
            "again. Times are in your `timezone`."
        ),
    ),
    "timezone": Topic(
        marked(
            "`timezone Europe/Berlin` (or just a city, like `timezone Berlin`): set the time zone for `quiet` and "
            "`digest`"
        ),
    ),
    "language": Topic(
        marked("`language en`, `language de`, `language fr` or `language es`: choose the language I write in"),
        marked(
            "`language auto`: use the language of your client, if it tells me. I always understand commands in all "
            "four."
        ),
    ),
    "pause": Topic(
        marked("`pause #3`: pause a subscription; when you resume it, you get a short recap"),
        marked("`pause` alone pauses everything, including your saved searches. `resume #3` and `resume` continue."),
    ),
    "resume": Topic(
        marked("`resume #3`: continue a paused subscription"),
        marked("`resume` alone continues everything that is paused."),
    ),
    "set": Topic(
        marked("`set #3`: show or change the settings of a subscription: mute, title, edits, interval, format"),
        marked(
            "`set #3 mute on`: no messages from it. `set #3 title My news`: your own title for it. `set #3 edits "
            "off`: no corrections of entries you already have. `set #3 interval 2h`: at most one message every two "
            "hours, with everything new in it. `set #3 format $title: $link`: how entries look, using $channel, "
            "$title, $link, $date, $summary, $author, $tags. `set all edits off`: for all subscriptions. `set all "
            "latest off`: no latest entry when you subscribe."
        ),
    ),
    "filter": Topic(
        marked("`filter #3 deny crypto nft`: hide entries containing any of these words"),
        marked(
            'Also `"a phrase"` or `/regular expression/`. `filter #3 allow python`: show only entries containing '
            "this. `filter all deny …`: for all subscriptions. `filter #3` shows its filters, `filter #3 off` "
            "removes them."
        ),
    ),
    "export": Topic(
        marked("`export`: get your subscriptions as a list for other feed readers (OPML)"),
        marked("A long list comes as a file, or in several messages, each of which is a complete list."),
    ),
    "import": Topic(
        marked("`import URL`: subscribe to all feeds of a list (OPML), e.g. one exported by another reader"),
        marked("You can also send me the file, or paste the list after `import`."),
    ),
    "forget": Topic(
        marked("`forget me`: delete everything I know about you; I'll ask first"),
        marked(
            "That means subscriptions, saved searches, settings and unsent messages. `export` saves your subscriptions."
        ),
    ),
    "help": Topic(
        marked("`help`: show what I can do"),
        marked("`help subscribe`: more about one command."),
    ),
}


class Explained(Reply, frozen=True):
    """Help; of everything if ``topic`` is empty."""

    topic: str

    def _text(self, voice: Voice) -> str:
        if self.topic in HELP:
            return HELP[self.topic].all(voice)
        lines = (f"• {topic.first(voice)}" for topic in HELP.values())
        return "\n".join([voice.say("Here's what I can do:"), *lines])


class Incomplete(Refusal, frozen=True):
    """A verb came without what it needs."""

    verb: str

    def _text(self, voice: Voice) -> str:
        return HELP[self.verb].all(voice)


_TITLES: Final = {
    "subscribe": marked("Subscribe to a feed or page"),
    "unsubscribe": marked("Unsubscribe"),
    "list": marked("My subscriptions"),
    "find": marked("Find channels"),
    "watch": marked("Save a search"),
    "unwatch": marked("Delete a saved search"),
    "show": marked("Latest entries of a subscription"),
    "why": marked("How often is it checked?"),
    "status": marked("Is everything working?"),
    "quiet": marked("Quiet hours"),
    "digest": marked("Summaries"),
    "timezone": marked("Time zone"),
    "language": marked("Language"),
    "pause": marked("Pause subscriptions"),
    "resume": marked("Resume subscriptions"),
    "set": marked("Settings"),
    "export": marked("Export my subscriptions (OPML)"),
    "forget": marked("Delete my data"),
    "help": marked("Help"),
}


def command_title(verb: str, voice: Voice) -> str:
    """Return the title of a command in lists and forms (XEP-0050)."""
    return voice.say(_TITLES.get(verb, verb.capitalize()))
