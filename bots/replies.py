"""Reply → text: short, plain first, with XEP-0393 styling and the next useful step. Pure.

What a publisher or a user wrote is put on one line, stripped of what XML 1.0 forbids and of what
reverses or hides text, before it stands in a message.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from bots import exchange as say
from bots.failures import outcome, sentence
from bots.length import LONGEST_MESSAGE_BYTES, clip
from service.corona.reasons import Bound
from service.discovery.grammar import Finding, Query, written
from service.discovery.standing import Topic, Watch
from service.feeds.text import one_line
from service.feeds.urls import selector_of, without_selector
from service.habits import EVERY_DAY, MINUTES_PER_HOUR, Digest, Quiet
from service.model import Channel, Entry

WELCOME: Final = (
    "Hello! I am Coronet: I watch feeds and web pages and tell you here when something new appears.\n"
    "Send me the address of a site or feed to subscribe to it, e.g. `subscribe example.org`.\n"
    "`help` shows everything I understand."
)

_DAY_NAMES: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_HELP: Final = {
    "subscribe": "`subscribe URL` (or just the URL): tell you what is new there. A site's address is enough "
    "if the site names its feed; a page without one I can watch itself. `subscribe URL SELECTOR` watches one part of a "
    "page, named as in CSS: `subscribe example.org/prices #list` or `… main table`. Also: sub, add, follow.",
    "unsubscribe": "`unsubscribe #3` or `unsubscribe URL`: stop one subscription. `unsubscribe all` stops every one, "
    "after asking. Also: unsub, remove.",
    "list": "`list`: your subscriptions and their numbers. `list news`: those with “news” in title or URL. Also: ls.",
    "find": "`find tag=python lang=en`: search for channels by what they are about. Also: words of the title, author, "
    "host, domain, updates=daily, … `type=entry` searches for articles, `limit 20` shows more at once, `more` the next "
    "ones. Only channels that are listed, or that several people follow, can be found.",
    "watch": '`watch tag=python`, `watch "a phrase"` or `watch /regular expression/`: tell you of every article like '
    "that, in whatever channel that several people follow; each says which watch it met. `watch` alone: what you watch "
    "for.",
    "unwatch": "`unwatch #2`: stop watching for one of these. `watch` shows their numbers.",
    "show": "`show #3`: the latest entries of one subscription. `show #3 10`: the latest ten.",
    "why": "`why #3`: how often one subscription is looked at, and why.",
    "status": "`status`: whether everything you follow can be reached.",
    "quiet": "`quiet 22:00-07:00`: tell you nothing in these hours, but afterwards. `quiet 22:00-07:00 mon-fri`, "
    "`… sat,sun`, `… weekends`: on the nights that begin on these days. `quiet off`: at any time. By the clock of "
    "your `timezone`.",
    "digest": "`digest daily 08:00`: tell you everything new together, once a day. `digest hourly`, "
    "`digest weekly fri 17:00`, and `digest off` to be told at once again. By the clock of your `timezone`.",
    "timezone": "`timezone Europe/Berlin` (or just a city like `timezone Berlin`): whose clock `quiet` and `digest` go "
    "by.",
    "help": "`help`: everything I understand. `help subscribe`: more about one command.",
}


def text(reply: say.Reply, now_s: float) -> str:
    """Return the message that says this; never empty, valid XML 1.0, at most 4 kB. ``now_s``: Unix time."""
    return clip(_WRITERS[type(reply)](reply, now_s), LONGEST_MESSAGE_BYTES)


def title(channel: Channel) -> str:
    """Return what to call a channel on one line; a part of a page with its selector."""
    name = one_line(channel.title, 120) or one_line(without_selector(channel.url), 120)
    selector = one_line(selector_of(channel.url), 60)
    return f"{name} ({selector})" if selector else name


def address(channel: Channel) -> str:
    """Return a channel's URL and its selector, if it has one, as `subscribe` and `unsubscribe` take them."""
    return one_line(f"{without_selector(channel.url)} {selector_of(channel.url)}", 2500)


def entry_lines(entry: Entry) -> str:
    """Return an entry's title and link on a line each."""
    return "\n".join(part for part in (one_line(entry.title, 300), one_line(entry.link, 2000)) if part) or "(untitled)"


def joined_lines(text: str, max_chars: int) -> str:
    """Return a block of a page on one line."""
    return one_line(" · ".join(text.splitlines()), max_chars)


def many(count: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def _subscribed(reply: say.Subscribed, _now_s: float) -> str:
    name, number = title(reply.followed.channel), reply.followed.number
    if not reply.new:
        head = f"You are already subscribed to *{name}* (#{number})."
    elif reply.moved:
        head = f"It has moved to {one_line(reply.followed.channel.url, 2000)}: subscribed to *{name}* (#{number})."
    elif reply.discovered:
        head = f"That page names one feed, so I took it: subscribed to *{name}* (#{number})."
    else:
        head = f"Subscribed to *{name}* (#{number})."
    if reply.followed.channel.kind == "page":
        seen = f"\nWhat I saw last: {joined_lines(reply.latest.summary, 200)}" if reply.latest else ""
        return f"{head} I will tell you what changes on it.{seen}"
    if reply.latest is None:
        return f"{head}\nNothing is in it yet; I will tell you when something appears."
    return f"{head}\nLatest now:\n{entry_lines(reply.latest)}"


def _choose(reply: say.Choose, _now_s: float) -> str:
    options = [
        f"{i}. {one_line(o.title, 80) or 'Feed'}: {one_line(o.url, 300)}" for i, o in enumerate(reply.options, 1)
    ]
    return "\n".join(["That page names several feeds. Which one? Answer with its number, or `cancel`.", *options[:10]])


def _offer_page(reply: say.OfferPage, _now_s: float) -> str:
    return (
        f"There is no feed at {one_line(reply.url, 300)}. "
        "Shall I watch the page itself and tell you what changes on it? (`yes` or `no`)"
    )


def _confirm(reply: say.Confirm, _now_s: float) -> str:
    which = "your only subscription" if reply.count == 1 else f"all {reply.count} subscriptions"
    return f"Really end {which}? Answer `yes` or `no`."


def _unsubscribed(reply: say.Unsubscribed, _now_s: float) -> str:
    if len(reply.ended) == 1:
        ended = reply.ended[0]
        back = address(ended.channel)
        return f"Unsubscribed from *{title(ended.channel)}* (#{ended.number}). To undo, send: subscribe {back}"
    return f"Unsubscribed from all {many(len(reply.ended), 'channel')}. Send me a URL to start again."


def _listing(reply: say.Listing, _now_s: float) -> str:
    if not reply.total:
        return "You have no subscriptions. Send me the address of a site or feed to start."
    if not reply.found:
        wanted = one_line(reply.wanted, 40)
        return f"None of your {many(reply.total, 'subscription')} contains “{wanted}”. `list` shows all."
    rows = [f"#{f.number} {title(f.channel)}" for f in reply.found]
    with_urls = [f"{row}\n    {one_line(address(f.channel), 200)}" for row, f in zip(rows, reply.found, strict=True)]
    head = (
        f"{len(rows)} of {many(reply.total, 'subscription')}:"
        if reply.wanted
        else f"{many(len(rows), 'subscription')}:"
    )
    full = "\n".join([head, *with_urls])
    if len(full.encode()) <= LONGEST_MESSAGE_BYTES:
        return full
    return _fitted(head, rows, "and {} more; narrow it with `list word`")


def _shown(reply: say.Shown, _now_s: float) -> str:
    head = f"*{title(reply.followed.channel)}* (#{reply.followed.number})"
    if not reply.entries:
        return f"{head}\nNothing is in it yet."
    is_page = reply.followed.channel.kind == "page"
    rows = [joined_lines(entry.summary, 300) if is_page else entry_lines(entry) for entry in reply.entries]
    return _fitted(head, rows, "and {} more")


def _found(reply: say.Found, _now_s: float) -> str:
    asked = one_line(reply.wanted, 200)
    what = "article" if reply.query.about == "entry" else "channel"
    if not reply.findings:
        return f"I know no {what} like that: {asked}. {_instead(reply.query)}"
    head = f"{'More' if reply.before else 'These are the'} {what}s I know: {asked}"
    rows = [
        f"{number}. {_finding(finding)}"
        for number, finding in enumerate(reply.findings, 1)
        if number > reply.before
    ]  # fmt: skip
    more = " `more` shows others." if reply.more else ""
    return _fitted(head, [*rows, f"Answer with a number to subscribe to it.{more}"], "and {} more lines")


def _instead(query: Query) -> str:
    """Return what to try where nothing was found."""
    watch = f"`watch {written(Topic(query.pairs))}` tells you when there is one." if query.about == "entry" else ""
    if len(query.pairs) > 1:
        return f"Try fewer conditions. {watch}".strip()
    if query.about == "entry":
        return watch
    return "Another word or tag may do, or send me the address of a site that has it: I look for its feed."


def _finding(finding: Finding) -> str:
    if finding.entry is None:
        yours = " (yours; others do not find it)" if finding.own else ""
        return f"{title(finding.channel)}{yours}\n    {one_line(address(finding.channel), 200)}"
    return f"{entry_lines(finding.entry)}\n    in {title(finding.channel)}"


def _watching(reply: say.Watching, _now_s: float) -> str:
    return (
        f"I watch for {_watched(reply.watch)} from now on (#{reply.watch.number}), in all channels that several people "
        f"follow. `unwatch #{reply.watch.number}` ends it."
    )


def _watches(reply: say.Watches, _now_s: float) -> str:
    if not reply.watches:
        return f"You watch for nothing. {_HELP['watch']}"
    rows = [f"#{watch.number} {_watched(watch)}" for watch in reply.watches]
    return _fitted("You watch for:", rows, "and {} more")


def _watched(watch: Watch) -> str:
    return one_line(written(watch.standing), 300)


_BINDING: Final = {
    Bound.NONE: "That is its share of all the looks that may be taken.",
    Bound.LONGEST_WAIT: "That is so that nobody has to wait longer.",
    Bound.NODES: "Every worker takes part; only more of them could look more often.",
    Bound.CHANNEL_BUDGET: "Politeness to its publisher allows no more.",
    Bound.HOST_BUDGET: "Politeness to its site, which has other channels as well, allows no more.",
    Bound.FLEET_BUDGET: "All looks that may be taken are too few for everybody to have the usual share.",
}


def _reasoned(reply: say.Reasoned, now_s: float) -> str:
    reason, name = reply.reason, title(reply.followed.channel)
    workers = len(reason.turns)
    turns = "by one worker" if workers == 1 else f"by {workers} workers in turn"
    next_s = min(turn.next_poll_s for turn in reason.turns) - now_s
    due = f"in {_span(next_s)}" if next_s >= 1 else "now"
    return (
        f"*{name}* (#{reply.followed.number}) is looked at every {_span(reason.interval_s / workers)}, {turns}.\n"
        f"What is new is seen after {_span(reason.wait_s)} on average; the next look is due {due}.\n"
        f"{_BINDING[reason.bound]}\n"
        f"As far as I can tell, something is new about every {_span(reason.update_interval_s)}."
    )


def _status(reply: say.StatusReport, now_s: float) -> str:
    if not reply.workers:
        return "No worker is running just now, so nothing is being polled. I will catch up as soon as one is back."
    head = f"You follow {many(reply.count, 'channel')}; {many(reply.workers, 'worker')} at work."
    if not reply.count:
        return f"{head} Send me a URL to follow one."
    if not reply.failing:
        return f"{head} Everything can be reached."
    rows = [
        f"#{f.number} {title(f.channel)}: {outcome(code)} for {_age(now_s - since_s)}"
        for f, code, since_s in reply.failing
    ]
    return _fitted(f"{head} {len(rows)} cannot be reached; I keep trying:", rows, "and {} more")


def _explained(reply: say.Explained, _now_s: float) -> str:
    if reply.topic in _HELP:
        return _HELP[reply.topic]
    return "\n".join(
        ["This is what I understand:", *(f"• {words.split('. ')[0].rstrip('.')}" for words in _HELP.values())]
    )


def _incomplete(reply: say.Incomplete, _now_s: float) -> str:
    return f"{_HELP[reply.verb].split('. ')[0].rstrip('.')}."


def _habits(reply: say.HabitsTold, now_s: float) -> str:
    habits = reply.habits
    head = "From now on I tell you" if reply.changed else "I tell you"
    when = " at once" if habits.digest is None else f", all of it together, {_digest(habits.digest)}"
    hours = f", but nothing {_quiet(habits.quiet)}" if habits.quiet else ""
    clock = datetime.fromtimestamp(now_s, ZoneInfo(habits.zone)).strftime("%H:%M")
    words = f"{head} what is new{when}{hours}. Your clock: {habits.zone}, where it is {clock} now."
    needs = habits.zone == "UTC" and (habits.quiet or (habits.digest and habits.digest.every != "hour"))
    return f"{words}\nIf that is not your time, tell me where you are, e.g. `timezone Berlin`." if needs else words


def _digest(digest: Digest) -> str:
    match digest.every:
        case "hour":
            return "every full hour"
        case "day":
            return f"every day at {_clock(digest.at)}"
        case "week":
            return f"every {_DAY_NAMES[digest.day]} at {_clock(digest.at)}"


def _quiet(quiet: Quiet) -> str:
    hours = f"from {_clock(quiet.begins)} to {_clock(quiet.ends)}" if quiet.begins != quiet.ends else ""
    if quiet.days == EVERY_DAY:
        return hours or "at all"
    return f"{hours} on {_days(quiet.days)}".strip()


def _days(days: tuple[int, ...]) -> str:
    """Return days of the week in words; they are sorted."""
    *most, last = (_DAY_NAMES[day] for day in days)
    if len(days) > 2 and days[-1] - days[0] == len(days) - 1:  # noqa: PLR2004 - two are named
        return f"{_DAY_NAMES[days[0]]} to {last}"
    return f"{', '.join(most)} and {last}" if most else last


def _clock(minute: int) -> str:
    return f"{minute // MINUTES_PER_HOUR:02}:{minute % MINUTES_PER_HOUR:02}"


def _unreadable_time(reply: say.UnreadableTime, _now_s: float) -> str:
    return f"I do not understand “{one_line(reply.words, 60)}” here.\n{_HELP[reply.verb]}"


def _no_such_zone(reply: say.NoSuchZone, _now_s: float) -> str:
    if reply.meant:
        return f"There are several. Which one? {', '.join(f'`timezone {name}`' for name in reply.meant)}"
    return (
        f"I know no time zone “{one_line(reply.words, 60)}”. Name a large city in it, e.g. `timezone Berlin`, "
        "or its name as in `timezone America/New_York`."
    )


def _subscriptions_full(reply: say.SubscriptionsFull, _now_s: float) -> str:
    return f"You have reached {reply.limit} subscriptions, the most one person can have. `unsubscribe #n` makes room."


def _new_urls_used_up(reply: say.NewUrlsUsedUp, _now_s: float) -> str:
    return f"That is more than {many(reply.limit, 'new URL')} within an hour. Try again later; the rest works as ever."


def _too_fast(reply: say.TooFast, _now_s: float) -> str:
    return (
        f"That is more than {many(reply.limit, 'command')} a minute. "
        "What you send in the next minute is not carried out; then I read on."
    )


def _did_you_mean(reply: say.DidYouMean, _now_s: float) -> str:
    return f"I do not understand that. Did you mean `{one_line(reply.command, 200)}`? Answer `yes`, or try again."


def _failed(reply: say.Failed, _now_s: float) -> str:
    return sentence(reply.error, one_line(reply.subject, 200))


_WRITERS: Final[dict[type[Any], Callable[[Any, float], str]]] = {
    say.Subscribed: _subscribed,
    say.Choose: _choose,
    say.OfferPage: _offer_page,
    say.Found: _found,
    say.NothingMore: lambda *_: "There is nothing more. `find` begins a new search.",
    say.Watching: _watching,
    say.Watches: _watches,
    say.Unwatched: lambda reply, _: f"I watch for {_watched(reply.watch)} no more.",
    say.NoSuchWatch: lambda *_: "You watch for nothing of that number. `watch` shows what you watch for.",
    say.Confirm: _confirm,
    say.Unsubscribed: _unsubscribed,
    say.NoSuchSubscription: lambda *_: "You have no such subscription. `list` shows what you have.",
    say.Listing: _listing,
    say.Shown: _shown,
    say.Reasoned: _reasoned,
    say.StatusReport: _status,
    say.HabitsTold: _habits,
    say.UnreadableTime: _unreadable_time,
    say.NoSuchZone: _no_such_zone,
    say.Explained: _explained,
    say.Incomplete: _incomplete,
    say.SubscriptionsFull: _subscriptions_full,
    say.NewUrlsUsedUp: _new_urls_used_up,
    say.TooFast: _too_fast,
    say.LetBe: lambda *_: "All right, nothing was changed.",
    say.NothingAsked: lambda *_: "I have not asked anything. `help` shows what I understand.",
    say.DidYouMean: _did_you_mean,
    say.NotUnderstood: lambda *_: "I do not understand that. Send me a URL to subscribe to it, or `help`.",
    say.Failed: _failed,
}


def _age(age_s: float) -> str:
    for unit_s, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if age_s >= unit_s:
            return many(int(age_s // unit_s), unit)
    return "less than a minute"


def _span(length_s: float) -> str:
    """Return a length of time in words, rounded."""
    for unit_s, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if length_s >= 1.5 * unit_s:
            return many(round(length_s / unit_s), unit)
    return many(max(1, round(length_s)), "second")


def _fitted(head: str, rows: list[str], rest: str) -> str:
    """Return head and as many rows as fit one message; ``rest`` says how many do not."""
    left_bytes = LONGEST_MESSAGE_BYTES - len(head.encode()) - len(rest.encode()) - 8
    kept = []
    for row in rows:
        left_bytes -= len(row.encode()) + 1
        if left_bytes < 0:
            break
        kept.append(row)
    return "\n".join([head, *kept, *([rest.format(len(rows) - len(kept))] if len(kept) < len(rows) else [])])
