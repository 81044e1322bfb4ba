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
        marked("`subscribe URL` (or just the URL): tell you what is new there"),
        marked(
            "A site's address is enough if the site names its feed; a page without one I can watch itself. "
            "`subscribe URL SELECTOR` watches one part of a page, named as in CSS: `subscribe example.org/prices "
            "#list` or `… main table`. `subscribe URL with mute=on title=My news`: with settings, as `set` knows them. "
            "Also: sub, add, follow."
        ),
    ),
    "unsubscribe": Topic(
        marked("`unsubscribe #3` or `unsubscribe URL`: stop one subscription"),
        marked("`unsubscribe all` stops every one, after asking. Also: unsub, remove."),
    ),
    "list": Topic(
        marked("`list`: your subscriptions and their numbers"),
        marked("`list news`: those with “news” in title or URL. Also: ls."),
    ),
    "find": Topic(
        marked("`find tag=python lang=en`: search for channels by what they are about"),
        marked(
            "Also: words of the title, author, host, domain, updates=daily, … `type=entry` searches for articles, "
            "`limit 20` shows more at once, `more` the next ones. Only channels that are listed, or that several "
            "people follow, can be found."
        ),
    ),
    "watch": Topic(
        marked(
            '`watch tag=python`, `watch "a phrase"` or `watch /regular expression/`: tell you of every article like '
            "that, in whatever channel that several people follow; each says which watch it met"
        ),
        marked("`watch` alone: what you watch for."),
    ),
    "unwatch": Topic(
        marked("`unwatch #2`: end one watch"),
        marked("`watch` shows their numbers."),
    ),
    "show": Topic(
        marked("`show #3`: the latest entries of one subscription"),
        marked("`show #3 10`: the latest ten."),
    ),
    "why": Topic(marked("`why #3`: how often one subscription is looked at, and why")),
    "status": Topic(marked("`status`: whether everything you follow can be reached")),
    "quiet": Topic(
        marked("`quiet 22:00-07:00`: tell you nothing in these hours, but afterwards"),
        marked(
            "`quiet 22:00-07:00 mon-fri`, `… sat,sun`, `… weekends`: on the nights that begin on these days. "
            "`quiet off`: at any time. By the clock of your `timezone`. `quiet presence`: nothing while you are away, "
            "busy or offline."
        ),
    ),
    "digest": Topic(
        marked("`digest daily 08:00`: tell you everything new together, once a day"),
        marked(
            "`digest hourly`, `digest weekly fri 17:00`, and `digest off` to be told at once again. "
            "By the clock of your `timezone`."
        ),
    ),
    "timezone": Topic(
        marked(
            "`timezone Europe/Berlin` (or just a city like `timezone Berlin`): whose clock `quiet` and `digest` go by"
        ),
    ),
    "language": Topic(
        marked("`language en`, `language de`, `language fr` or `language es`: which language I speak with you"),
        marked(
            "`language auto`: the one that your client is set to, if it says so. I understand all four at any time."
        ),
    ),
    "pause": Topic(
        marked("`pause #3`: tell you nothing of one subscription for a while, and afterwards in brief what came"),
        marked("`pause` alone: of none, nor of your watches. `resume #3` and `resume` end it."),
    ),
    "resume": Topic(
        marked("`resume #3`: tell you of a paused subscription again"),
        marked("`resume` alone: of everything that is paused."),
    ),
    "set": Topic(
        marked("`set #3`: how you want one subscription: mute, title, edits, interval, format"),
        marked(
            "`set #3 mute on`: tell you nothing of it. `set #3 title My news`: what you call it. `set #3 edits off`: "
            "no corrections of what you were told. `set #3 interval 2h`: tell you of it at most once in two "
            "hours, all together. `set #3 format $title: $link`: how entries look, with $channel, "
            "$title, $link, $date, $summary, $author, $tags. `set all edits off`: for all subscriptions. "
            "`set all proof off`: no latest entry when a subscription begins."
        ),
    ),
    "filter": Topic(
        marked("`filter #3 deny crypto nft`: tell you nothing of one subscription that has one of these words"),
        marked(
            'Also `"a phrase"` or `/regular expression/`. `filter #3 allow python`: tell you only what has this. '
            "`filter all deny …`: of all subscriptions. `filter #3` shows its filters, `filter #3 off` removes them."
        ),
    ),
    "export": Topic(
        marked("`export`: your subscriptions as a list that other readers take (OPML)"),
        marked("A long one comes as a file, or in several messages, each of which is a whole list."),
    ),
    "import": Topic(
        marked("`import URL`: subscribe to everything on a list (OPML), e.g. one that another reader exported"),
        marked("Or send me the file, or paste the list itself after `import`."),
    ),
    "forget": Topic(
        marked("`forget me`: delete everything I know about you, after asking"),
        marked("Subscriptions, watches, settings, and what is still to be told. `export` saves your subscriptions."),
    ),
    "help": Topic(
        marked("`help`: everything I understand"),
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
        return "\n".join([voice.say("This is what I understand:"), *lines])


class Incomplete(Refusal, frozen=True):
    """A verb came without what it needs."""

    verb: str

    def _text(self, voice: Voice) -> str:
        return HELP[self.verb].all(voice)


_TITLES: Final = {
    "subscribe": marked("Subscribe to a feed or page"),
    "unsubscribe": marked("End subscriptions"),
    "list": marked("My subscriptions"),
    "find": marked("Find channels"),
    "watch": marked("Watch for a subject"),
    "unwatch": marked("End a watch"),
    "show": marked("Latest entries of a subscription"),
    "why": marked("How often is it looked at?"),
    "status": marked("Is everything in order?"),
    "quiet": marked("Quiet hours"),
    "digest": marked("When to be told"),
    "timezone": marked("Time zone"),
    "language": marked("Language"),
    "pause": marked("Pause subscriptions"),
    "resume": marked("Resume subscriptions"),
    "set": marked("Settings of a subscription"),
    "export": marked("My subscriptions as OPML"),
    "forget": marked("Forget me"),
    "help": marked("Help"),
}


def command_title(verb: str, voice: Voice) -> str:
    """Return the title of a command in lists and forms (XEP-0050)."""
    return voice.say(_TITLES.get(verb, verb.capitalize()))
