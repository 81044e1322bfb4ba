"""What is said when subscriptions begin and end."""

from bots import exchange as say
from bots.replies.parts import address, entry_lines, fitted, joined_lines, title
from bots.replies.preferring import chosen
from bots.voice import Voice
from service.feeds.text import one_line


def subscribed(reply: say.Subscribed, voice: Voice) -> str:
    """Say that it is watched, and prove it by what is there now."""
    head = _begun(reply, voice)
    if reply.followed.channel.kind == "page":
        head = voice.say("{begun} I will tell you what changes on it.", begun=head)
    return "\n".join([head, *chosen(reply.preferences, voice), *_proof(reply, voice)])


def _proof(reply: say.Subscribed, voice: Voice) -> list[str]:
    """Return what is there now, as far as it is wanted."""
    if reply.latest is None:
        return []
    if reply.followed.channel.kind == "page":
        seen = (joined_lines(entry.summary, 200) for entry in reply.latest[:1])
        return [voice.say("What I saw last: {text}", text=text) for text in seen]
    if not reply.latest:
        return [voice.say("Nothing is in it yet; I will tell you when something appears.")]
    return [voice.say("Latest now:"), *(entry_lines(entry, voice) for entry in reply.latest)]


def _begun(reply: say.Subscribed, voice: Voice) -> str:
    name, number = title(reply.followed.channel), reply.followed.number
    if not reply.new:
        return voice.say("You are already subscribed to *{title}* (#{number}).", title=name, number=str(number))
    if reply.moved:
        url = one_line(reply.followed.channel.url, 2000)
        return voice.say(
            "It has moved to {url}: subscribed to *{title}* (#{number}).", url=url, title=name, number=str(number)
        )
    if reply.discovered:
        return voice.say(
            "That page names one feed, so I took it: subscribed to *{title}* (#{number}).",
            title=name,
            number=str(number),
        )
    return voice.say("Subscribed to *{title}* (#{number}).", title=name, number=str(number))


def choose(reply: say.Choose, voice: Voice) -> str:
    """Ask which of a page's feeds is meant."""
    untitled = voice.say("Feed")
    options = [
        f"{i}. {one_line(option.title, 80) or untitled}: {one_line(option.url, 300)}"
        for i, option in enumerate(reply.options[:10], 1)
    ]
    asked = voice.say("That page names several feeds. Which one? Answer with its number, or `cancel`.")
    return "\n".join([asked, *options])


def offer_page(reply: say.OfferPage, voice: Voice) -> str:
    """Ask whether the page itself is to be watched."""
    return voice.say(
        "There is no feed at {url}. "
        "Shall I watch the page itself and tell you what changes on it? (`yes` or `no`)",
        url=one_line(reply.url, 300),
    )  # fmt: skip


def confirm(reply: say.Confirm, voice: Voice) -> str:
    """Ask whether to end every subscription."""
    return voice.many(
        "Really end your only subscription? Answer `yes` or `no`.",
        "Really end all {count} subscriptions? Answer `yes` or `no`.",
        reply.count,
    )


def unsubscribed(reply: say.Unsubscribed, voice: Voice) -> str:
    """Say what has ended, and how to undo it."""
    if len(reply.ended) == 1:
        ended = reply.ended[0]
        return voice.say(
            "Unsubscribed from *{title}* (#{number}). To undo, send: subscribe {url}",
            title=title(ended.channel),
            number=str(ended.number),
            url=address(ended.channel),
        )
    return voice.many(
        "Unsubscribed from {count} channel. Send me a URL to start again.",
        "Unsubscribed from all {count} channels. Send me a URL to start again.",
        len(reply.ended),
    )


def no_such_subscription(_reply: say.NoSuchSubscription, voice: Voice) -> str:
    """Answer for what is not there and for what is not theirs."""
    return voice.say("You have no such subscription. `list` shows what you have.")


def subscriptions_full(reply: say.SubscriptionsFull, voice: Voice) -> str:
    """Say how many there may be."""
    return voice.many(
        "You have reached {count} subscription, the most one person can have. `unsubscribe #n` makes room.",
        "You have reached {count} subscriptions, the most one person can have. `unsubscribe #n` makes room.",
        reply.limit,
    )


def new_urls_used_up(reply: say.NewUrlsUsedUp, voice: Voice) -> str:
    """Say how many there may be, and what still works."""
    return voice.many(
        "That is more than {count} new URL within an hour. Try again later; the rest works as ever.",
        "That is more than {count} new URLs within an hour. Try again later; the rest works as ever.",
        reply.limit,
    )


def which_one(reply: say.WhichOne, voice: Voice) -> str:
    """Ask which of the channels is meant that a message told of."""
    rows = [f"#{option.number} {title(option.channel)}" for option in reply.options]
    head = voice.say("That message told of several channels. Which one? Answer with its number, or `cancel`.")
    return fitted(head, rows, voice)


def forgotten_message(_reply: say.ForgottenMessage, voice: Voice) -> str:
    """Say that a message is too old to point at."""
    return voice.say("I no longer know what that message told. `list` shows your subscriptions and their numbers.")
