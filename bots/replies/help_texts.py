"""Help texts and titles of the commands."""

from collections.abc import Sequence
from typing import Final

import msgspec

from bots.commands.parser import UnknownCommand, parse
from bots.commands.verb_synonyms import LEAVE, VERB_OF
from bots.i18n.translator import Translator, gettext_noop
from bots.replies.greetings_and_refusals import contact_text
from service.feeds.parsing.html_text import one_line


class HelpTopic(msgspec.Struct, frozen=True):
    """The help text of a command: ``line`` is a one-line summary without a full stop, ``more`` contains details."""

    line: str
    more: str = ""


HELP: Final = {
    "subscribe": HelpTopic(
        gettext_noop("`subscribe URL` (or just the URL): follow a feed or a page"),
        gettext_noop(
            "The address of the site will usually do: I look for its feed, and if there is none, I can monitor the "
            "page itself. `subscribe URL SELECTOR` monitors only one part of a page, chosen by a CSS selector, e.g. "
            "`subscribe example.org/prices #list` or `… main table`, by an XPath, e.g. `… xpath=//table[2]`, or in a "
            "JSON document by a JSONPath, e.g. `… json=$.items[*].price`. `subscribe URL css=.price when < 20` "
            "tells you only when a number crosses a limit; also `>`, `=`, `changes by 5 %`. `subscribe URL with "
            "mute=on title=My news` subscribes with these settings (see `help set`). For a private feed, add `login "
            "NAME PASSWORD`, `token TOKEN`, `cookie NAME=VALUE` or `header NAME: VALUE` after the address; I store it "
            "encrypted and send it to that site only. Also: sub, add, follow."
        ),
    ),
    "unsubscribe": HelpTopic(
        gettext_noop("`unsubscribe #3` or `unsubscribe URL`: end a subscription"),
        gettext_noop("`unsubscribe all` ends them all; I'll ask first. Also: unsub, remove."),
    ),
    "list": HelpTopic(
        gettext_noop("`list`: show your subscriptions and their numbers"),
        gettext_noop(
            "`list news`: only those in the folder “news” or, if there is none, with “news” in the title or URL. `list "
            "folders`: your folders. Also: ls."
        ),
    ),
    "find": HelpTopic(
        gettext_noop("`find rust async`: search for channels, or for entries from the last three days"),
        gettext_noop(
            'You can use `"a phrase"`, `-word` (leave it out), `rust OR go` (either word), `pyth*` (beginning of a '
            "word), `title:`, `tag:`, `author:`, `lang:en` and `site:example.org`. `type:entry` or "
            "`after:yesterday` searches for entries only, `limit 20` shows more at once, and `more` shows the next "
            "results. I search your own channels and public ones: those that several people follow or that an admin "
            "has listed."
        ),
    ),
    "discover": HelpTopic(
        gettext_noop("`discover`: browse popular and new channels"),
        gettext_noop(
            "To narrow it down, send e.g. `discover new`, `discover linux`, `discover lang:fr` or `discover new linux`."
        ),
    ),
    "watch": HelpTopic(
        gettext_noop("`watch rust -game`: save a search and get every new match from public channels"),
        gettext_noop(
            "You can search as with `find`, and also use `watch /regular expression/`. I'll show you right away "
            "what the search would have found in the last three days. Each match says which saved search found it. "
            "`watch` alone lists your saved searches."
        ),
    ),
    "unwatch": HelpTopic(
        gettext_noop("`unwatch #2`: delete a saved search"),
        gettext_noop("`watch` lists your saved searches with their numbers."),
    ),
    "show": HelpTopic(
        gettext_noop("`show #3`: show the latest entries of a subscription"),
        gettext_noop("`show #3 10`: the latest ten."),
    ),
    "why": HelpTopic(gettext_noop("`why #3`: explain how often I check a subscription, and why")),
    "status": HelpTopic(gettext_noop("`status`: see whether all your subscriptions are working")),
    "quiet": HelpTopic(
        gettext_noop("`quiet 22:00-07:00`: set quiet hours; new entries wait until they end"),
        gettext_noop(
            "`quiet 22:00-07:00 mon-fri`, `… sat,sun`, `… weekends`: only on nights that begin on these days. "
            "`quiet off`: no quiet hours. `quiet presence`: send nothing while you are away, busy or offline. Times "
            "are in your `timezone`."
        ),
    ),
    "digest": HelpTopic(
        gettext_noop("`digest daily 08:00`: get one daily summary instead of separate messages"),
        gettext_noop(
            "`digest hourly` or `digest weekly fri 17:00`: get one every hour or every week. `digest off`: go back to "
            "getting each entry right away. `digest News daily 08:00`: only for the folder “News”. Times are in your "
            "`timezone`."
        ),
    ),
    "timezone": HelpTopic(
        gettext_noop(
            "`timezone Europe/Berlin` (or just a city, like `timezone Berlin`): set the time zone for `quiet` and "
            "`digest`"
        ),
    ),
    "language": HelpTopic(
        gettext_noop("`language fr`: choose the language I write in; `language` lists all of them"),
        gettext_noop(
            "`language auto`: use your client's language, if it tells me. I always understand commands in all of these "
            "languages."
        ),
    ),
    "pause": HelpTopic(
        gettext_noop("`pause #3`: pause a subscription; when you resume it, you get a short recap"),
        gettext_noop(
            "`pause` alone pauses everything, including your saved searches. `pause News` pauses what is in the folder "
            "“News”. To start again, send `resume #3`, `resume News` or `resume`."
        ),
    ),
    "resume": HelpTopic(
        gettext_noop("`resume #3`: resume a paused subscription"),
        gettext_noop("`resume News` resumes what is in the folder “News”, `resume` alone everything that is paused."),
    ),
    "set": HelpTopic(
        gettext_noop(
            "`set #3`: show or change the settings of a subscription: mute, title, folder, edits, interval, digest, "
            "format, text, images, when"
        ),
        gettext_noop(
            "`set #3 mute on`: send nothing from it. `set #3 title My news`: give it your own title. `set #3 folder "
            "News`: put it into a folder. `set News mute on`: change a setting for a folder, also for subscriptions "
            "that come into it later. `set #3 edits off`: send no corrections to entries you already have. `set #3 "
            "interval 2h`: send at most one message every two hours, with everything new in it. `set #3 format $title: "
            "$link`: choose how entries look, using $channel, $title, $link, $date, $summary, $author, $tags, $image, "
            "$enclosure (an attached file). `set #3 text 500`: show up to 500 characters of an entry's text (0 to "
            "2,000). `set #3 text full`: show the beginning of the article on the page that a new entry links to. "
            "`set #3 images on`: send the image of a new entry, too. `set #3 when < 20`: for a page, send only "
            "changes by which a number falls below 20. `set all edits off`: change a setting for all subscriptions. "
            "`set all latest off`: show no entries when you subscribe."
        ),
    ),
    "filter": HelpTopic(
        gettext_noop("`filter #3 deny crypto OR nft`: hide entries containing one of these words"),
        gettext_noop(
            'Write it like a search: a space means “and”, `-word` means “not”; use `OR`, `"a phrase"`, `title:`, '
            "`author:`, `link:`, `tag:` and `text:`, or `/regular expression/`. I'll show you which of the latest "
            "entries the filter would have hidden. `filter #3 allow python`: show only entries containing this word. "
            "`filter News deny …`: filter a folder. `filter all deny …`: filter all subscriptions. `filter #3` shows "
            "its filters, and `filter #3 off` removes them."
        ),
    ),
    "announcements": HelpTopic(
        gettext_noop("`announcements off`: stop getting announcements from the people who run this service"),
        gettext_noop("`announcements on`: get them again. They're rare, and about downtime, moves or new rules."),
    ),
    "export": HelpTopic(
        gettext_noop("`export`: get your subscriptions as a list for other feed readers (OPML)"),
        gettext_noop("A long list comes as a file, or in several messages, each of which can be imported on its own."),
    ),
    "import": HelpTopic(
        gettext_noop("`import URL`: subscribe to all feeds in a list (OPML), e.g. one exported by another reader"),
        gettext_noop(
            "You can also send me the file, or paste the list after `import`. `import status` says how far I am, and "
            "`import stop` stops it."
        ),
    ),
    "atom": HelpTopic(
        gettext_noop("`atom`: get the secret address of a feed with all your news, for other readers (Atom)"),
        gettext_noop(
            "`atom #3`: only one subscription. `atom Work`: only those in a folder. Whoever knows an address can read "
            "all your feeds. `atom new` replaces the addresses, and `atom off` ends them. Your mutes and filters apply."
        ),
    ),
    "webhook": HelpTopic(
        gettext_noop("`webhook https://example.org/hook`: also send everything new to a program of yours, as JSON"),
        gettext_noop(
            "`webhook` shows whether it works, and `webhook off` ends it. Your mutes and filters apply; quiet hours "
            "and summaries don't."
        ),
    ),
    "forget": HelpTopic(
        gettext_noop("`forget me`: delete everything I know about you; I'll ask first"),
        gettext_noop(
            "That means subscriptions, saved searches, settings and unsent messages. `export` saves your subscriptions."
        ),
    ),
    "help": HelpTopic(
        gettext_noop("`help`: show what I can do"),
        gettext_noop("`help subscribe`: more about one command."),
    ),
}


def help_text(verb: str, translator: Translator) -> str:
    """Return the help text for the command ``verb``, which must be a key of ``HELP``."""
    topic = HELP[verb]
    summary = f"{translator.gettext(topic.line)}."
    return f"{summary} {translator.gettext(topic.more)}" if topic.more else summary


def help_list(topic: str, contact_addresses: Sequence[str], room_nick: str, translator: Translator) -> str:
    """Return the help text for the command ``topic``, or the list of all commands.

    The list is returned if ``topic`` is "", or if the command has no help text. If there is no such command, the
    result says so, and suggests a command with a similar name, if any.

    - ``contact_addresses``: the URIs at which users can contact the operators. The list ends with them.
    - ``room_nick``: the bot's nick in the room, or "" outside rooms. In a room, the list says how to write commands
      there.
    """
    if topic in HELP:
        return help_text(topic, translator)
    if topic and topic.lower() not in VERB_OF.keys() | LEAVE:
        return _unknown_topic(one_line(topic, 40), translator)
    head = translator.gettext("Here's what I can do:")
    lines = [f"• {translator.gettext(each.line)}" for each in HELP.values()]
    if room_nick:
        lines.append(
            translator.gettext(
                "In this room, begin each command with my name, e.g. `{nick}: list`. Its owners and admins can also "
                "send `{nick}: leave`, which sends me away.",
                nick=room_nick,
            )
        )
    return "\n".join([head, *lines, contact_text(contact_addresses, translator)]).rstrip()


def _unknown_topic(words: str, translator: Translator) -> str:
    command = parse(words)
    near = command.suggestion.partition(" ")[0] if isinstance(command, UnknownCommand) else ""
    if near in HELP:
        return translator.gettext(
            "I don't know the command “{words}”. Did you mean `help {verb}`?", words=words, verb=near
        )
    return translator.gettext("I don't know the command “{words}”. Send `help` for a list.", words=words)


_TITLES: Final = {
    "subscribe": gettext_noop("Subscribe to a feed or page"),
    "unsubscribe": gettext_noop("Unsubscribe"),
    "list": gettext_noop("My subscriptions"),
    "find": gettext_noop("Search"),
    "discover": gettext_noop("Discover channels"),
    "watch": gettext_noop("Save a search"),
    "unwatch": gettext_noop("Delete a saved search"),
    "show": gettext_noop("Latest entries of a subscription"),
    "why": gettext_noop("How often is it checked?"),
    "status": gettext_noop("Is everything working?"),
    "quiet": gettext_noop("Quiet hours"),
    "digest": gettext_noop("Summaries"),
    "timezone": gettext_noop("Time zone"),
    "language": gettext_noop("Language"),
    "pause": gettext_noop("Pause subscriptions"),
    "resume": gettext_noop("Resume subscriptions"),
    "set": gettext_noop("Settings"),
    "announcements": gettext_noop("Announcements"),
    "export": gettext_noop("Export my subscriptions (OPML)"),
    "atom": gettext_noop("My news as a feed (Atom)"),
    "webhook": gettext_noop("Webhook"),
    "forget": gettext_noop("Delete my data"),
    "help": gettext_noop("Help"),
}


def command_title(verb: str, translator: Translator) -> str:
    """Return the title of a command in the user's language, for menus and forms (XEP-0050)."""
    return translator.gettext(_TITLES.get(verb, verb.capitalize()))
