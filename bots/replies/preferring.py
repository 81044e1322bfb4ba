"""What is said about pauses, settings and filters."""

from bots import exchange as say
from bots.commands import MOST_SHOWN
from bots.replies.help import HELP
from bots.replies.parts import fitted, title
from bots.templates import MOST_CHARS, MOST_LINES, VARIABLES
from bots.voice import Voice
from service.feeds.text import one_line
from service.filters import Rule, written
from service.preferences import LEAST_INTERVAL_S, MOST_INTERVAL_S, NONE, USUAL_PROOF, Preferences


def paused(reply: say.Paused, voice: Voice) -> str:
    """Say what is paused, and how to go on."""
    if reply.everything:
        return voice.say(
            "All is paused, and your watches too: I tell you nothing. `resume` ends it; what your subscriptions had "
            "meanwhile I then tell you in brief."
        )
    only = reply.meant[0]
    name, number = title(only.channel), str(only.number)
    if not reply.fresh:
        return voice.say("*{title}* is paused already. `resume #{number}` ends it.", title=name, number=number)
    return voice.say(
        "*{title}* is paused. `resume #{number}` ends it; what came meanwhile I then tell you in brief.",
        title=name,
        number=number,
    )


def resumed(reply: say.Resumed, voice: Voice) -> str:
    """Say what is told again, and what becomes of what came meanwhile."""
    if not reply.resumed and not reply.everything:
        return voice.say("That was not paused.")
    if reply.everything:
        head = voice.say("I tell you of everything again.")
    else:
        head = voice.say("I tell you of *{title}* again.", title=title(reply.resumed[0].channel))
    if reply.versions:
        told = voice.many(
            "Meanwhile there was {count} update; it follows.",
            "Meanwhile there were {count} updates; they follow in brief.",
            reply.versions,
        )
    else:
        told = voice.say("Nothing came meanwhile.")
    if not reply.unheard:
        return f"{head} {told}"
    unheard = voice.many(
        "Your watches met {count} article, which I do not send any more; `find type=entry` and what you watch for "
        "finds it.",
        "Your watches met {count} articles, which I do not send any more; `find type=entry` and what you watch for "
        "finds them.",
        reply.unheard,
    )
    return f"{head} {told}\n{unheard}"


def preferred(reply: say.Preferred, voice: Voice) -> str:
    """Say how the settings are."""
    if reply.followed is None:
        head = voice.say("From now on, for all:") if reply.changed else voice.say("For all:")
    else:
        name, number = title(reply.followed.channel), str(reply.followed.number)
        if reply.changed:
            head = voice.say("From now on, for *{title}* (#{number}):", title=name, number=number)
        else:
            head = voice.say("For *{title}* (#{number}):", title=name, number=number)
    rows = _settings(reply.preferences, voice, for_all=reply.followed is None)
    rows += _looked(reply, voice)
    example = "all" if reply.followed is None else f"#{reply.followed.number}"
    tail = "" if reply.changed else voice.say("To change it, e.g.: `set {which} edits off`.", which=example)
    return fitted(head, rows, voice, tail)


def _looked(reply: say.Preferred, voice: Voice) -> list[str]:
    """Return what an interval that was set comes to, beside how often the channel is looked at."""
    wanted_s = reply.preferences.interval_s or 0
    if reply.looks_s is None:
        return []
    looks = voice.span(reply.looks_s)
    if not wanted_s:
        return [voice.say("It is looked at every {looks}.", looks=looks)]
    if wanted_s < reply.looks_s:
        return [
            voice.say(
                "It is looked at only every {looks}, and this does not change that: all looks are shared out among "
                "everybody's channels. `why #{number}` tells more.",
                looks=looks,
                number=str(reply.followed.number) if reply.followed else "",
            )
        ]
    return [
        voice.say("What comes meanwhile you are told together. It is looked at every {looks}, as before.", looks=looks)
    ]


def _settings(preferences: Preferences, voice: Voice, *, for_all: bool) -> list[str]:
    """Return a line per setting, which begins with its name."""
    on, off, as_for_all = voice.say("on"), voice.say("off"), voice.say("as for all")
    usual_title, usual_format = voice.say("as its publisher calls it"), voice.say("the usual one")
    rows = [f"mute: {on if preferences.muted else off}"]
    if for_all:
        rows.append(f"proof: {_proof(preferences, voice)}")
    else:
        rows.append(f"title: {one_line(preferences.title, 120) or usual_title}")
    if preferences.edits is None:
        rows.append(f"edits: {on if for_all else as_for_all}")
    else:
        rows.append(f"edits: {on if preferences.edits else off}")
    rows.append(f"interval: {_interval(preferences, voice, for_all=for_all)}")
    if preferences.template:
        rows.append(f"format: {one_line(preferences.template, MOST_CHARS)}")
    else:
        rows.append(f"format: {as_for_all if preferences.template is None and not for_all else usual_format}")
    return rows + [f"filter: {_rule(rule)}" for rule in preferences.rules]


def chosen(preferences: Preferences, voice: Voice) -> list[str]:
    """Return a line per setting that is not as usual."""
    usual = _settings(NONE, voice, for_all=False)
    return [row for row in _settings(preferences, voice, for_all=False) if row not in usual]


def _interval(preferences: Preferences, voice: Voice, *, for_all: bool) -> str:
    if preferences.interval_s:
        return voice.say("at most once in {interval}", interval=voice.exactly(preferences.interval_s))
    usual = preferences.interval_s is None and not for_all
    return voice.say("as for all") if usual else voice.say("at once")


def _proof(preferences: Preferences, voice: Voice) -> str:
    proof = USUAL_PROOF if preferences.proof is None else preferences.proof
    return str(proof) if proof else voice.say("off")


def no_such_setting(reply: say.NoSuchSetting, voice: Voice) -> str:
    """Say which settings there are."""
    said = voice.say("There is no setting “{words}”.", words=one_line(reply.key, 40))
    return f"{said} {HELP['set'].all(voice)}"


def unreadable_setting(reply: say.UnreadableSetting, voice: Voice) -> str:
    """Say what a setting may be."""
    match reply.key:
        case "title":
            return voice.say(
                "How shall I call it? For example: `set #3 title My news`; `off` is as its publisher calls it."
            )
        case "proof":
            return voice.say(
                "How many of its latest entries I show when a subscription begins, 0 to {most}: `set all proof 3`, "
                "`set all proof off`, or for one `subscribe URL with proof=3`.",
                most=str(MOST_SHOWN),
            )
        case "interval":
            return voice.say(
                "How far apart shall I tell you of it, from {least} to {most}? For example: `set #3 interval 2h`, "
                "`set #3 interval daily`; `off` is at once, `default` as for all. How often it is looked at does not "
                "follow from it: `why #3` tells that.",
                least=voice.exactly(LEAST_INTERVAL_S),
                most=voice.exactly(MOST_INTERVAL_S),
            )
        case "format" if reply.strangers:
            return voice.say(
                "I know no {words}. A format may have these: {variables}.",
                words=one_line(voice.listed([f"${name}" for name in reply.strangers]), 200),
                variables=_variables(),
            )
        case "format":
            return voice.say(
                "A format is up to {chars} characters on up to {lines} lines (`\\n` begins one), with at least one of "
                "these: {variables}. For example: `set #3 format $title: $link ($date)`; `off` is the usual one.",
                chars=MOST_CHARS,
                lines=MOST_LINES,
                variables=_variables(),
            )
        case key:
            return voice.say("“{words}” is neither `on` nor `off`.", words=one_line(reply.value, 60) or key)


def _variables() -> str:
    return ", ".join("$" + name for name in VARIABLES)


def filters(reply: say.Filters, voice: Voice) -> str:
    """Name filters by their numbers."""
    if not reply.rules:
        if reply.changed:
            return voice.say("There is no filter there any more: I tell you everything again.")
        return " ".join([voice.say("There is no filter there."), HELP["filter"].all(voice)])
    if reply.followed is None:
        head = voice.say("Filters for all your subscriptions:")
    else:
        head = voice.say(
            "Filters for *{title}* (#{number}):",
            title=title(reply.followed.channel),
            number=str(reply.followed.number),
        )
    rows = [f"{number}. {_rule(rule)}" for number, rule in enumerate(reply.rules, 1)]
    which = "all" if reply.followed is None else f"#{reply.followed.number}"
    return fitted(head, rows, voice, voice.say("`filter {which} off 1` removes the first.", which=which))


def _rule(rule: Rule) -> str:
    """Return a rule as it is written."""
    return f"{'allow' if rule.allow else 'deny'} {one_line(written(rule.test), 200)}"


def no_such_filter(_reply: say.NoSuchFilter, voice: Voice) -> str:
    """Say where the numbers are."""
    return voice.say(
        "There is no filter of that number. `filter #3` shows those of one subscription, `filter` those for all."
    )


def filters_full(reply: say.FiltersFull, voice: Voice) -> str:
    """Say how many there may be."""
    return voice.many(
        "There is {count} filter there, the most there can be. A /regular expression/ can take the place of several.",
        "There are {count} filters there, the most there can be. A /regular expression/ can take the place of several.",
        reply.limit,
    )
