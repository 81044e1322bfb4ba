"""What people write, as values. Pure: text in, one :data:`Command` out, never an exception.

Verbs are case-insensitive and have the synonyms people try first. A URL alone means *subscribe*; what
follows it is a selector only after the verb, elsewhere it is talk, unless it is ``with key=value``. A number alone
answers a numbered question, and what is nearly a verb comes back as :class:`Unknown` with the verb that was probably
meant.
"""

import difflib
import re
from collections.abc import Callable
from typing import Final

import msgspec

from bots.verbs import ALL, GUESSABLE, ME, VERB_OF
from service.discovery.pairs import ATTRIBUTES
from service.feeds.urls import looks_like_url

LONGEST_LIST = 16_384
"""Characters of a list of feeds to import that are read; a longer one is to be imported from its URL."""
_LONGEST_VERB = 40
LONGEST = 4096
"""Characters of a command that are read; longer than any URL we watch."""


class Subscribe(msgspec.Struct, frozen=True):
    """Watch the channel at this URL (empty when none was given); with a CSS selector, that part of the page.

    ``wishes`` are settings, each with its value, as they were written.
    """

    url: str
    selector: str = ""
    wishes: tuple[tuple[str, str], ...] = ()


class Target(msgspec.Struct, frozen=True):
    """Which of one's own subscriptions is meant: by ``number`` (``#3``), by ``url``, or all; none of it if not said.

    ``selector`` is the part of the page at ``url``.
    """

    number: int = 0
    url: str = ""
    selector: str = ""
    everything: bool = False


class Unsubscribe(msgspec.Struct, frozen=True):
    """End one subscription."""

    target: Target


class Pause(msgspec.Struct, frozen=True):
    """Tell nothing of these subscriptions for a while."""

    target: Target


class Resume(msgspec.Struct, frozen=True):
    """Tell of these subscriptions again, and briefly what came meanwhile."""

    target: Target


class Set(msgspec.Struct, frozen=True):
    """Change what is wanted of one subscription or of all; without a key, tell it."""

    target: Target
    key: str = ""
    value: str = ""


class Filter(msgspec.Struct, frozen=True):
    """Add or remove a filter of one subscription or of all; ``words`` are still to be read, "" to ask."""

    target: Target
    words: str = ""


class Enter(msgspec.Struct, frozen=True):
    """Let me in: this is my invitation."""

    code: str


class Export(msgspec.Struct, frozen=True):
    """Give me my subscriptions as a list (OPML)."""


class Import(msgspec.Struct, frozen=True):
    """Subscribe me to all of a list (OPML): its text, or the URL where it is."""

    words: str


class ForgetMe(msgspec.Struct, frozen=True):
    """Delete everything about me; asks once."""


class UnsubscribeAll(msgspec.Struct, frozen=True):
    """End every subscription; asks once."""


class List(msgspec.Struct, frozen=True):
    """Name one's subscriptions, those whose title or URL contains ``wanted``."""

    wanted: str = ""


class Show(msgspec.Struct, frozen=True):
    """Show a channel's latest ``count`` entries."""

    target: Target
    count: int


class Why(msgspec.Struct, frozen=True):
    """Why is this polled as often as it is?"""

    target: Target


class Find(msgspec.Struct, frozen=True):
    """Search for channels or entries by what ``wanted`` states (``service.discovery.grammar``)."""

    wanted: str


class More(msgspec.Struct, frozen=True):
    """Show what else was found."""


class Watch(msgspec.Struct, frozen=True):
    """Tell of every entry that is as ``wanted`` states, in whatever channel; without it, name what is watched for."""

    wanted: str


class Unwatch(msgspec.Struct, frozen=True):
    """End the watch of this number; 0 if none was said."""

    number: int


class Status(msgspec.Struct, frozen=True):
    """Is everything in order?"""


class Quiet(msgspec.Struct, frozen=True):
    """Tell me nothing in these hours; ``words`` are still to be read, "off" for at any time, "" to ask."""

    words: str


class Digest(msgspec.Struct, frozen=True):
    """Tell me everything together, so often; ``words`` as for :class:`Quiet`."""

    words: str


class Timezone(msgspec.Struct, frozen=True):
    """My clock is that of this place ("" to ask)."""

    words: str


class Language(msgspec.Struct, frozen=True):
    """Speak this language with me ("" to ask)."""

    words: str


class Help(msgspec.Struct, frozen=True):
    """Explain everything, or one verb."""

    topic: str = ""


class Greet(msgspec.Struct, frozen=True):
    """Who are you?"""


class Answer(msgspec.Struct, frozen=True):
    """Yes or no to what was asked last."""

    yes: bool


class Pick(msgspec.Struct, frozen=True):
    """The number chosen from what was offered last."""

    number: int


class Cancel(msgspec.Struct, frozen=True):
    """Forget what was asked last."""


class Unknown(msgspec.Struct, frozen=True):
    """Not understood; ``suggestion`` is a whole command that was perhaps meant, or empty."""

    text: str
    suggestion: str = ""


Command = (
    Subscribe | Unsubscribe | UnsubscribeAll | List | Find | More | Watch | Unwatch | Show | Why | Status | Quiet
    | Export | Import | Enter
    | ForgetMe | Pause | Resume | Set | Filter | Digest | Timezone | Language | Help | Greet | Answer | Pick | Cancel
    | Unknown
)  # fmt: skip

HARMLESS: Final = (List, Find, More, Show, Why, Status, Help, Greet, Unknown)
"""Commands that change nothing."""

USUALLY_SHOWN, MOST_SHOWN = 3, 10

VERBS: Final = (
    *("subscribe", "unsubscribe", "list", "find", "watch", "unwatch", "show", "why", "status", "quiet", "digest"),
    *("timezone", "language", "pause", "resume", "set", "filter", "export", "import", "forget"),
    "help",
)
"""What ``help`` explains."""

_SHORT: Final = {"stop": "unsubscribe #{}", "mute": "set #{} mute on", "unmute": "set #{} mute off"}
"""What people write under a message and nowhere else, or what means something else there."""

_ALONE: Final = ("unsubscribe", "show", "why", "pause", "resume")
_BEFORE: Final = ("set", "filter")

REACTIONS: Final = {
    **dict.fromkeys(("❌", "✖", "🗑", "🚫", "⛔", "🛑"), "unsubscribe"),
    **dict.fromkeys(("🔇", "🔕", "🤫"), "mute"),
    **dict.fromkeys(("⏸", "💤"), "pause"),
    **dict.fromkeys(("▶", "⏯"), "resume"),
    **dict.fromkeys(("❓", "❔"), "why"),
}
"""Emoji, without what only chooses their look, and the command each stands for."""

_NUMBER = re.compile(r"#?([0-9]{1,6})[.)]?")
_WITH = re.compile(r"\s(?:with|mit|avec|con)\s+(?=[^\W\d]\w{0,20}=)", re.IGNORECASE)
_NEXT_WISH = re.compile(r"\s(?=[^\W\d]\w{0,20}=)")


def parse(text: str) -> Command:
    """Return the command that ``text`` states."""
    line = cut(text)
    verb, rest = (*line.split(maxsplit=1), "", "")[:2]
    name = VERB_OF.get(verb.lower().rstrip(":,!."))
    if name is not None:
        return _READERS[name](rest)
    if (number := _NUMBER.fullmatch(line)) is not None:
        return Pick(int(number[1]))
    if "://" in verb or looks_like_url(_url(verb)):
        return _subscribe(line, bare=True)
    return Unknown(line, _suggestion(verb, rest))


def reaction(emojis: tuple[str, ...]) -> str:
    """Return the command that the newest of these reactions stands for; "" if none does."""
    found = [REACTIONS[plain] for emoji in emojis if (plain := emoji.rstrip("\ufe0f")) in REACTIONS]
    return found[-1] if found else ""


def lacking(text: str) -> str:
    """Return the command that lacks a subscription, with ``{}`` in its place; "" if it lacks none."""
    verb, rest = (*text.strip().lstrip("/").split(maxsplit=1), "", "")[:2]
    plain = verb.lower().rstrip(":,!.")
    if not rest and plain in _SHORT:
        return _SHORT[plain]
    name = VERB_OF.get(plain, "")
    if name in _ALONE and not rest:
        return f"{name} #{{}}"
    if name in _BEFORE and rest and rest.split()[0].lower() not in ALL:
        command = parse(f"{name} {rest}")
        if isinstance(command, Set | Filter) and command.target.everything:
            return f"{name} #{{}} {rest.replace('{', '{{').replace('}', '}}')}"
    return ""


def cut(text: str) -> str:
    """Return as much of what somebody writes as is read."""
    line = text[:LONGEST_LIST].strip().lstrip("/").strip()
    verb = line[:_LONGEST_VERB].split(maxsplit=1)[:1]
    return line if verb and VERB_OF.get(verb[0].lower()) == "import" else line[:LONGEST].rstrip()


def _url(words: str) -> str:
    """Return the first word without what people and clients put around a URL."""
    return words.split(maxsplit=1)[0].rstrip(",;").strip("<>\"'`") if words else ""


def _target(words: str) -> Target:
    first = words.split(maxsplit=1)[0] if words else ""
    number = _NUMBER.fullmatch(first)
    return Target(number=int(number[1])) if number else Target(url=_url(first))


def _selector(words: str) -> str:
    """Return what follows the URL; nothing, if a comma shows that somebody just goes on talking."""
    url, *rest = words.split() or [""]
    return "" if url.endswith((",", ";")) else " ".join(rest)


def _subscribe(rest: str, *, bare: bool = False) -> Command:
    """Return what is wanted of a URL: what is called a list of feeds is to be imported."""
    words, *wishes = _WITH.split(rest, maxsplit=1)
    url, selector = _url(words), "" if bare else _selector(words)
    pairs = [wish.partition("=") for wish in _NEXT_WISH.split(wishes[0])] if wishes else []
    path = url.partition("#")[0].partition("?")[0]
    if path.lower().endswith(".opml") and not selector and not pairs:
        return Import(url)
    return Subscribe(url, selector, tuple((key, value.strip(' "“”„')) for key, _, value in pairs))


def _unsubscribe(rest: str) -> Command:
    if rest.lower() in ALL:
        return UnsubscribeAll()
    target = _target(rest)
    return Unsubscribe(Target(url=target.url, selector=_selector(rest)) if target.url else target)


def _any(words: str) -> Target:
    """Return the subscription that is meant, or all of them."""
    return Target(everything=True) if not words or words.lower() in ALL else _target(words)


def _about(rest: str) -> tuple[Target, str]:
    """Return which subscriptions are meant, all if the first word names none, and the other words."""
    first, other = (*rest.split(maxsplit=1), "", "")[:2]
    if first.lower() in ALL:
        return Target(everything=True), other
    named = _NUMBER.fullmatch(first) is not None or looks_like_url(_url(first))
    return (_target(first), other) if named else (Target(everything=True), rest)


def _set(rest: str) -> Command:
    target, words = _about(rest)
    return Set(target, *(*words.split(maxsplit=1), "", "")[:2])


def _show(rest: str) -> Command:
    target, count = (*rest.split(), "", "")[:2]
    number = _NUMBER.fullmatch(count)
    return Show(_target(target), max(1, min(int(number[1]), MOST_SHOWN)) if number else USUALLY_SHOWN)


def _help(rest: str) -> Command:
    return Help(VERB_OF.get(rest.lower(), ""))


_READERS: Final[dict[str, Callable[[str], Command]]] = {
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
    "list": List,
    "find": Find,
    "more": lambda _: More(),
    "watch": Watch,
    "unwatch": lambda rest: Unwatch(_target(rest).number),
    "show": _show,
    "why": lambda rest: Why(_target(rest)),
    "status": lambda _: Status(),
    "invite": Enter,
    "export": lambda _: Export(),
    "import": Import,
    "forget": lambda rest: ForgetMe() if rest.lower().strip("-. ") in ME else Help("forget"),
    "pause": lambda rest: Pause(_any(rest)),
    "resume": lambda rest: Resume(_any(rest)),
    "set": _set,
    "filter": lambda rest: Filter(*_about(rest)),
    "quiet": Quiet,
    "digest": Digest,
    "timezone": Timezone,
    "language": Language,
    "mute": lambda rest: Set(_any(rest), "mute", "on"),
    "unmute": lambda rest: Set(_any(rest), "mute", "off"),
    "help": _help,
    "hello": lambda _: Greet(),
    "yes": lambda _: Answer(yes=True),
    "no": lambda _: Answer(yes=False),
    "cancel": lambda _: Cancel(),
}


def _suggestion(verb: str, rest: str) -> str:
    if verb.partition("=")[0].lower() in ATTRIBUTES:
        return f"find {verb} {rest}".strip()
    for known in (VERBS, GUESSABLE):
        near = difflib.get_close_matches(verb.lower()[:20], known, n=1, cutoff=0.7)
        if near:
            return f"{VERB_OF[near[0]]} {rest}".strip()
    return ""
