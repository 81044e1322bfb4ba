"""Parser for the commands that people type: a pure function that turns any text into a :data:`Command`.

Parsing never raises. Verbs are case-insensitive and have synonyms in every language of the bot.

- After a verb and a URL, the remaining words are a selector, perhaps followed by ``when`` and a numeric condition, or a
  credential (:mod:`service.feeds.credentials`).
- A URL without a verb means *subscribe*. The remaining words are ignored, except a selector that begins with its kind,
  such as ``xpath=``, and ``with key=value``, which sets a setting.
- A number without a verb answers a numbered question.
- Text that resembles a verb becomes an :class:`UnknownCommand` with a suggestion.
"""

import difflib
import re

import msgspec

from bots.commands.verb_synonyms import (
    ALL_WORDS,
    COMMAND_OF_REACTION,
    ERASURE_WORDS,
    GUESSABLE_WORDS,
    READ_ONLY,
    REPLY_SHORTHANDS,
    SUBSCRIPTION_FIRST,
    SUBSCRIPTION_ONLY,
    VERB_OF,
    VERBS,
)
from service.discovery.queries.query_tokens import is_field
from service.feeds.canonical_urls import is_selector_with_kind, looks_like_url
from service.feeds.credentials import Credential, parse_credential

MAX_LIST_CHARS = 16_384
"""Maximum length of an OPML list in a message; a longer list can be imported from a URL."""
_MAX_VERB_CHARS = 40
MAX_COMMAND_CHARS = 4096
"""Maximum length of a command other than an OPML list. It is greater than the maximum length of a URL."""


InitialSettings = tuple[tuple[str, str], ...]
"""Settings in a subscribe command: names and values as the user typed them."""


class SubscribeCommand(msgspec.Struct, frozen=True):
    """A command to subscribe to the feed at a URL, or to a page or a part of a page.

    - ``url``: the URL; "" if the user gave none.
    - ``selector``: the selector of the part of the page; "" if there is none.
    - ``settings``: names and values of settings as the user typed them.
    - ``as_page``: whether the user has accepted the bot's offer to monitor the page itself instead of a feed.
    - ``credential``: the credential with which the URL is fetched; None if the user gave none.
    """

    url: str
    selector: str = ""
    settings: InitialSettings = ()
    as_page: bool = False
    credential: Credential | None = None


class SubscriptionTarget(msgspec.Struct, frozen=True):
    """The subscription that a command applies to, a folder of them, or all of the user's subscriptions.

    - ``number``: the number of the subscription, for example 3 for ``#3``; 0 if the user gave none.
    - ``url``: the URL of the feed or page; "" if the user gave none.
    - ``selector``: the selector of the part of the page; "" if there is none.
    - ``everything``: whether the command applies to all subscriptions.
    - ``folder``: the text of the target, which may be the name of a folder; "" for verbs without such a target.

    If the command names no subscription, all fields keep their defaults.
    """

    number: int = 0
    url: str = ""
    selector: str = ""
    everything: bool = False
    folder: str = ""


class VerbCommand(msgspec.Struct, frozen=True):
    """A command that begins with a verb.

    - ``name``: the verb in its canonical form.
    - ``target``: the subscription that the command applies to.
    - ``words``: the remaining text, which is parsed by the dialogue for this verb.
    """

    name: str
    target: SubscriptionTarget = SubscriptionTarget()
    words: str = ""


class AnswerCommand(msgspec.Struct, frozen=True):
    """An answer to the bot's last question: "yes", "no", or the number of an option.

    If the bot has not asked a question, a number refers to a subscription.
    """

    answer: str


class UnknownCommand(msgspec.Struct, frozen=True):
    """Text that is not a command. ``suggestion`` is a complete command that resembles it, or "" if there is none."""

    text: str
    suggestion: str = ""


Command = SubscribeCommand | VerbCommand | AnswerCommand | UnknownCommand

DEFAULT_ENTRY_COUNT, MAX_ENTRY_COUNT = 3, 10

_NUMBER = re.compile(r"#?([0-9]{1,6})[.)]?")
_WITH = re.compile(r"\s(?:with|mit|avec|con|com|met|z)\s+(?=[^\W\d]\w{0,20}=)", re.IGNORECASE)
_WHEN = re.compile(
    r"\s(?:when|wenn|quand|cuando|quando|wanneer|kiedy|gdy)\s+"
    r"(?=[<>=≤≥±]|(?:changes?|ändert|cambia|muda|verandert|zmienia)\b)",
    re.IGNORECASE,
)
_NEXT_SETTING = re.compile(r"\s(?=[^\W\d]\w{0,20}=)")


def parse(text: str) -> Command:
    """Parse ``text``, which a user has typed, into a command."""
    line = truncate_input(text)
    verb, rest = (*line.split(maxsplit=1), "", "")[:2]
    name = VERB_OF.get(verb.lower().rstrip(":,!."))
    if name is not None:
        return _parse_verb(name, rest)
    if (number := _NUMBER.fullmatch(line)) is not None:
        return AnswerCommand(str(int(number[1])))
    if "://" in verb or looks_like_url(_url(verb)):
        return _subscribe(line, bare=True)
    return UnknownCommand(line, _suggestion(verb, rest))


def command_of_reaction(emojis: tuple[str, ...]) -> str:
    """Return the command that a reaction stands for, such as "unsubscribe" for ❌; "" if it stands for none.

    If several of the emojis stand for commands, the last of these commands is returned.
    """
    found = [COMMAND_OF_REACTION[plain] for emoji in emojis if (plain := emoji.rstrip("\ufe0f")) in COMMAND_OF_REACTION]
    return found[-1] if found else ""


def incomplete_command_template(text: str) -> str:
    """Return a template that adds a subscription number to the command in ``text``; "" if no number is missing.

    For example, "pause" gives "pause #{}", in which ``{}`` stands for the number. No number is missing if the command
    already names a subscription, or does not apply to a single subscription.
    """
    verb, rest = (*text.strip().lstrip("/").split(maxsplit=1), "", "")[:2]
    plain = verb.lower().rstrip(":,!.")
    if not rest and plain in REPLY_SHORTHANDS:
        return REPLY_SHORTHANDS[plain]
    name = VERB_OF.get(plain, "")
    if name in SUBSCRIPTION_ONLY and not rest:
        return f"{name} #{{}}"
    if name in SUBSCRIPTION_FIRST and rest and rest.split()[0].lower() not in ALL_WORDS:
        command = parse(f"{name} {rest}")
        if isinstance(command, VerbCommand) and command.target.everything:
            return f"{name} #{{}} {rest.replace('{', '{{').replace('}', '}}')}"
    return ""


def is_read_only(command: Command) -> bool:
    """Return whether the command can be executed without changing any data."""
    return isinstance(command, UnknownCommand) or (isinstance(command, VerbCommand) and command.name in READ_ONLY)


def parse_entry_count(words: str) -> int:
    """Return how many entries a `show` command requests, from 1 to 10; 3 if ``words`` is not a number.

    ``words`` are the words that follow the subscription.
    """
    number = _NUMBER.fullmatch(words)
    return max(1, min(int(number[1]), MAX_ENTRY_COUNT)) if number else DEFAULT_ENTRY_COUNT


def truncate_input(text: str) -> str:
    """Strip white space and leading slashes from the text, and cut it to the maximum length.

    The maximum length is ``MAX_LIST_CHARS`` for the command `import`, and ``MAX_COMMAND_CHARS`` for other text.
    """
    line = text[:MAX_LIST_CHARS].strip().lstrip("/").strip()
    verb = line[:_MAX_VERB_CHARS].split(maxsplit=1)[:1]
    return line if verb and VERB_OF.get(verb[0].lower()) == "import" else line[:MAX_COMMAND_CHARS].rstrip()


def _url(words: str) -> str:
    """Return the first word, which should be a URL, without the punctuation that people put around URLs."""
    return words.split(maxsplit=1)[0].rstrip(",;").strip("<>\"'`") if words else ""


def _target(words: str) -> SubscriptionTarget:
    first = words.split(maxsplit=1)[0] if words else ""
    number = _NUMBER.fullmatch(first)
    return SubscriptionTarget(number=int(number[1])) if number else SubscriptionTarget(url=_url(first))


def _selector(words: str) -> str:
    """Return the selector in ``words``: everything after the first word, which is the URL.

    If a comma follows the URL, the remaining words are assumed to be prose, and the result is "".
    """
    url, *rest = words.split() or [""]
    return "" if url.endswith((",", ";")) else " ".join(rest)


def _subscribe(rest: str, *, bare: bool = False) -> Command:
    """Return the command to subscribe to the URL with which ``rest`` begins.

    Normally, ``rest`` is the text after the verb `subscribe`. If ``bare`` is true, the user has typed a URL
    without a verb; the words after the URL are then taken as a selector only if they begin with its kind, such as
    ``xpath=``. If the URL names an ``.opml`` file, return an import command instead.
    """
    credential = None if bare else parse_credential("".join(rest.split(maxsplit=1)[1:]))
    if credential is not None:
        return SubscribeCommand(_url(rest), credential=credential)
    words, *settings = _WITH.split(rest, maxsplit=1)
    words, *condition = _WHEN.split(words, maxsplit=1)
    url, selector = _url(words), _selector(words)
    if bare and not is_selector_with_kind(selector):
        selector = ""
    pairs = [("when", "=", text) for text in condition]
    pairs += [setting.partition("=") for setting in _NEXT_SETTING.split(settings[0])] if settings else []
    path = url.partition("#")[0].partition("?")[0]
    if path.lower().endswith(".opml") and not selector and not pairs:
        return VerbCommand("import", words=url)
    return SubscribeCommand(url, selector, tuple((key, value.strip(' "“”„')) for key, _, value in pairs))


def _target_or_all(words: str) -> SubscriptionTarget:
    """Return the target that ``words`` name, or all subscriptions if ``words`` is empty."""
    if not words or words.lower() in ALL_WORDS:
        return SubscriptionTarget(everything=True)
    target = _target(words)
    return msgspec.structs.replace(target, folder=words) if target.url else target


def _target_and_words(rest: str) -> tuple[SubscriptionTarget, str]:
    """Split ``rest`` into the target that its first word names, and the remaining words.

    If the first word names no subscription, the target is all subscriptions, and no word is removed. The remaining
    words may then begin with the name of a folder.
    """
    first, other = (*rest.split(maxsplit=1), "", "")[:2]
    if first.lower() in ALL_WORDS:
        return SubscriptionTarget(everything=True), other
    named = _NUMBER.fullmatch(first) is not None or looks_like_url(_url(first))
    return (_target(first), other) if named else (SubscriptionTarget(everything=True), rest)


def _parse_verb(name: str, rest: str) -> Command:  # noqa: PLR0911 - one arm per form
    """Return the command with the verb ``name`` and the text ``rest`` after the verb."""
    match name:
        case "subscribe":
            return _subscribe(rest)
        case "unsubscribe":
            target = SubscriptionTarget(everything=True) if rest.lower() in ALL_WORDS else _target(rest)
            return VerbCommand(
                name, SubscriptionTarget(url=target.url, selector=_selector(rest)) if target.url else target
            )
        case "show" | "why" | "unwatch":
            return VerbCommand(name, _target(rest), " ".join(rest.split()[1:2]))
        case "pause" | "resume":
            return VerbCommand(name, _target_or_all(rest))
        case "set" | "filter" | "atom":
            return VerbCommand(name, *_target_and_words(rest))
        case "mute" | "unmute":
            return VerbCommand("set", _target_or_all(rest), "mute on" if name == "mute" else "mute off")
        case "yes" | "no":
            return AnswerCommand(name)
        case "forget" if rest.lower().strip("-. ") not in ERASURE_WORDS:
            return VerbCommand("help", words=name)
        case "help":
            return VerbCommand(name, words=VERB_OF.get(rest.lower(), rest))
        case _:
            return VerbCommand(name, words=rest)


def _suggestion(verb: str, rest: str) -> str:
    if is_field(re.split("[:=]", verb, maxsplit=1)[0]) and not verb.endswith((":", "=")):
        return f"find {verb} {rest}".strip()
    for known in (VERBS, GUESSABLE_WORDS):
        near = difflib.get_close_matches(verb.lower()[:20], known, n=1, cutoff=0.7)
        if near:
            return f"{VERB_OF[near[0]]} {rest}".strip()
    return ""
