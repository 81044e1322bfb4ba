"""What is said about subscriptions: which there are, what is in them, how they fare."""

from typing import Final

from bots import exchange as say
from bots.asking import Followed
from bots.failures import outcome
from bots.length import LONGEST_MESSAGE_BYTES
from bots.replies.parts import address, entry_lines, fitted, joined_lines, title
from bots.voice import Voice, marked
from service.corona.reasons import Bound
from service.feeds.text import one_line

_BINDING: Final = {
    Bound.NONE: marked("That is its share of all the looks that may be taken."),
    Bound.LONGEST_WAIT: marked("That is so that nobody has to wait longer."),
    Bound.CHANNEL_WAIT: marked("An admin set how long one may have to wait for it at most."),
    Bound.CHANNEL_INTERVAL: marked("An admin set that it is looked at no more often."),
    Bound.NODES: marked("Every worker takes part; only more of them could look more often."),
    Bound.CHANNEL_BUDGET: marked("Politeness to its publisher allows no more."),
    Bound.HOST_BUDGET: marked("Politeness to its site, which has other channels as well, allows no more."),
    Bound.FLEET_BUDGET: marked("All looks that may be taken are too few for everybody to have the usual share."),
}


def listing(reply: say.Listing, voice: Voice) -> str:
    """Name subscriptions; if they are too many for their URLs, by title alone."""
    if not reply.total:
        return voice.say("You have no subscriptions. Send me the address of a site or feed to start.")
    wanted = one_line(reply.wanted, 40)
    if not reply.found:
        return voice.many(
            "Your {count} subscription does not contain “{wanted}”. `list` shows all.",
            "None of your {count} subscriptions contains “{wanted}”. `list` shows all.",
            reply.total,
            wanted=wanted,
        )
    head = _counted(reply, voice)
    rows = [_row(followed, voice) for followed in reply.found]
    urls = [one_line(address(followed.channel), 200) for followed in reply.found]
    full = "\n".join([head, *(f"{row}\n    {url}" for row, url in zip(rows, urls, strict=True))])
    if len(full.encode()) <= LONGEST_MESSAGE_BYTES:
        return full
    return fitted(head, rows, voice, voice.say("Narrow it with `list word`."))


def _row(followed: Followed, voice: Voice) -> str:
    name, number = title(followed.channel), str(followed.number)
    if followed.paused:
        return voice.say("#{number} {title} (paused)", number=number, title=name)
    if followed.muted:
        return voice.say("#{number} {title} (muted)", number=number, title=name)
    return f"#{number} {name}"


def _counted(reply: say.Listing, voice: Voice) -> str:
    if not reply.wanted:
        return voice.many("{count} subscription:", "{count} subscriptions:", reply.total)
    return voice.many(
        "{found} of {count} subscription:", "{found} of {count} subscriptions:", reply.total, found=len(reply.found)
    )


def shown(reply: say.Shown, voice: Voice) -> str:
    """Show a channel's latest entries."""
    head = f"*{title(reply.followed.channel)}* (#{reply.followed.number})"
    if not reply.entries:
        return "\n".join([head, voice.say("Nothing is in it yet.")])
    is_page = reply.followed.channel.kind == "page"
    rows = [joined_lines(entry.summary, 300) if is_page else entry_lines(entry, voice) for entry in reply.entries]
    return fitted(head, rows, voice)


def reasoned(reply: say.Reasoned, voice: Voice, now_s: float) -> str:
    """Say how often a channel is looked at, when next, and why; and where everybody can read it."""
    reason, workers = reply.reason, len(reply.reason.turns)
    next_s = min(turn.next_poll_s for turn in reason.turns) - now_s
    return "\n".join(
        [
            voice.many(
                "*{title}* (#{number}) is looked at every {interval}, by one worker.",
                "*{title}* (#{number}) is looked at every {interval}, by {count} workers in turn.",
                workers,
                title=title(reply.followed.channel),
                number=str(reply.followed.number),
                interval=voice.span(reason.interval_s / workers),
            ),
            _awaited(voice.span(reason.wait_s), next_s, voice),
            voice.say(_BINDING[reason.bound]),
            voice.say(
                "As far as I can tell, something is new about every {interval}.",
                interval=voice.span(reason.update_interval_s),
            ),
            *([voice.say("Everybody can read it as a pubsub node: {uri}", uri=reply.node)] if reply.node else []),
        ]
    )


def _awaited(wait: str, next_s: float, voice: Voice) -> str:
    if next_s < 1:
        return voice.say("What is new is seen after {wait} on average; the next look is due now.", wait=wait)
    return voice.say(
        "What is new is seen after {wait} on average; the next look is due in {time}.",
        wait=wait,
        time=voice.span(next_s),
    )


def status(reply: say.StatusReport, voice: Voice, now_s: float) -> str:
    """Say whether all is well, and what is not."""
    if not reply.workers:
        return voice.say(
            "No worker is running just now, so nothing is being polled. I will catch up as soon as one is back."
        )
    at_work = voice.many("{count} worker at work", "{count} workers at work", reply.workers)
    head = voice.many(
        "You follow {count} channel; {at_work}.", "You follow {count} channels; {at_work}.", reply.count,
        at_work=at_work,
    )  # fmt: skip
    if not reply.count:
        return " ".join([head, voice.say("Send me a URL to follow one.")])
    if not reply.failing:
        return " ".join([head, voice.say("Everything can be reached.")])
    rows = [
        voice.say(
            "#{number} {title}: {trouble} for {age}",
            number=str(followed.number), title=title(followed.channel), trouble=outcome(code, voice),
            age=voice.span(now_s - since_s),
        )
        for followed, code, since_s in reply.failing
    ]  # fmt: skip
    ill = voice.many(
        "{count} cannot be reached; I keep trying:", "{count} cannot be reached; I keep trying:", len(rows)
    )
    return fitted(f"{head} {ill}", rows, voice)
