"""Replies about subscriptions: how they begin and end, which there are, how they fare, lists of them in and out."""

from typing import Final

from bots.i18n.translator import Voice, marked
from bots.replies.base import (
    LONGEST_MESSAGE_BYTES,
    Followed,
    Question,
    Refusal,
    Reply,
    address,
    entry_lines,
    fitted,
    joined_lines,
    title,
)
from bots.replies.errors import outcome, sentence
from bots.replies.settings import chosen
from service.corona.poll_explanation import BindingConstraint, PollExplanation
from service.errors import CoronetError, UploadRefused
from service.feeds.parsing.html_text import one_line
from service.model import Entry, FeedLink
from service.users.preferences import NO_PREFERENCES, Preferences

Wishes = tuple[tuple[str, str], ...]
"""Settings that were asked for with a subscription, each with its value, as they were written."""

_MOST_PROBLEMS = 10
_NO_SUBSCRIPTIONS: Final = marked("You have no subscriptions yet. Send me the address of a site or feed to start.")

_BINDING: Final = {
    BindingConstraint.NONE: marked("That is its fair share of the available checks."),
    BindingConstraint.LONGEST_WAIT: marked("It is checked often enough that nobody has to wait too long."),
    BindingConstraint.CHANNEL_WAIT: marked("An admin has set how long you may have to wait for its news."),
    BindingConstraint.CHANNEL_INTERVAL: marked("An admin has set how often it may be checked."),
    BindingConstraint.NODES: marked("To check it more often, more workers are needed."),
    BindingConstraint.CHANNEL_BUDGET: marked("Out of politeness to its publisher, it isn't checked more often."),
    BindingConstraint.HOST_BUDGET: marked(
        "Out of politeness to its site, which has other channels as well, it isn't checked more often."
    ),
    BindingConstraint.FLEET_BUDGET: marked(
        "There aren't enough checks for all channels right now, so it gets fewer than usual."
    ),
}


class Subscribed(Reply, frozen=True):
    """It is watched. ``latest`` is the proof, newest first; None if the person wants none.

    ``discovered`` says that the URL was a page which named this feed, ``moved`` that the channel went to another URL;
    ``preferences`` are what was asked for with it.
    """

    followed: Followed
    new: bool
    latest: tuple[Entry, ...] | None
    discovered: bool = False
    moved: bool = False
    preferences: Preferences = NO_PREFERENCES

    def _text(self, voice: Voice) -> str:
        head = self._begun(voice)
        if self.followed.channel.kind == "page":
            head = voice.say("{subscribed} I'll let you know when it changes.", subscribed=head)
        return "\n".join([head, *chosen(self.preferences, voice), *self._proof(voice)])

    def _begun(self, voice: Voice) -> str:
        name, number = title(self.followed.channel), str(self.followed.number)
        if not self.new:
            return voice.say("You're already subscribed to *{title}* (#{number}).", title=name, number=number)
        if self.moved:
            return voice.say(
                "It has moved to {url}. Subscribed to *{title}* (#{number}).",
                url=one_line(self.followed.channel.url, 2000),
                title=name,
                number=number,
            )
        if self.discovered:
            return voice.say(
                "I found a feed on that page. Subscribed to *{title}* (#{number}).",
                title=name,
                number=number,
            )
        return voice.say("Subscribed to *{title}* (#{number}).", title=name, number=number)

    def _proof(self, voice: Voice) -> list[str]:
        """Return what is there now, as far as it is wanted."""
        if self.latest is None:
            return []
        if self.followed.channel.kind == "page":
            seen = (joined_lines(entry.summary, 200) for entry in self.latest[:1])
            return [voice.say("Right now it says: {text}", text=text) for text in seen]
        if not self.latest:
            return [voice.say("It's empty so far; I'll let you know when something appears.")]
        head = voice.many("Latest entry:", "Latest {count} entries:", len(self.latest))
        return [head, *(entry_lines(entry, voice) for entry in self.latest)]


class Choose(Question, frozen=True):
    """Asks which of a page's feeds is meant; ``wishes`` are what was asked for with it."""

    options: tuple[FeedLink, ...]
    wishes: Wishes = ()

    def _text(self, voice: Voice) -> str:
        untitled = voice.say("Feed")
        options = [
            f"{i}. {one_line(option.title, 80) or untitled}: {one_line(option.url, 300)}"
            for i, option in enumerate(self.options[:10], 1)
        ]
        asked = voice.say("That page has several feeds. Which one would you like? Reply with its number, or `cancel`.")
        return "\n".join([asked, *options])


class OfferPage(Question, frozen=True):
    """Asks whether to watch the page itself at this canonical URL, which names no feed; ``wishes`` as above."""

    url: str
    wishes: Wishes = ()

    def _text(self, voice: Voice) -> str:
        return voice.say(
            "There's no feed at {url}. Shall I monitor the page itself and let you know when it changes? (`yes` or "
            "`no`)",
            url=one_line(self.url, 300),
        )  # fmt: skip


class Confirm(Question, frozen=True):
    """Asks whether to end all ``count`` subscriptions."""

    count: int

    def _text(self, voice: Voice) -> str:
        return voice.many(
            "Really end your only subscription? Reply `yes` or `no`.",
            "Really end all {count} subscriptions? Reply `yes` or `no`.",
            self.count,
        )


class WhichOne(Question, frozen=True):
    """Asks which of the channels is meant that a message told of.

    ``command`` has ``{}`` where the number is to stand.
    """

    command: str
    options: tuple[Followed, ...]

    def _text(self, voice: Voice) -> str:
        rows = [f"#{option.number} {title(option.channel)}" for option in self.options]
        head = voice.say(
            "That message was about several channels. Which one do you mean? Reply with its number, or `cancel`."
        )
        return fitted(head, rows, voice)


class ForgottenMessage(Reply, frozen=True):
    """We do not know any more what the message told that was reacted to."""

    sentence = marked(
        "I no longer know what that message was about. `list` shows your subscriptions and their numbers."
    )


class Unsubscribed(Reply, frozen=True):
    """These were ended."""

    ended: tuple[Followed, ...]

    def _text(self, voice: Voice) -> str:
        if len(self.ended) == 1:
            ended = self.ended[0]
            return voice.say(
                "Unsubscribed from *{title}* (#{number}). To undo, send: subscribe {url}",
                title=title(ended.channel),
                number=str(ended.number),
                url=address(ended.channel),
            )
        return voice.many(
            "Unsubscribed from {count} channel. Send me a URL to start again.",
            "Unsubscribed from all {count} channels. Send me a URL to start again.",
            len(self.ended),
        )


class NoSuchSubscription(Refusal, frozen=True):
    """Not found, or not yours: one answer for both."""

    sentence = marked("I can't find that subscription. `list` shows the ones you have.")


class SubscriptionsFull(Refusal, frozen=True):
    """No more than ``limit`` subscriptions."""

    limit: int

    def _text(self, voice: Voice) -> str:
        return voice.many(
            "You've reached the maximum of {count} subscription. `unsubscribe #n` makes room.",
            "You've reached the maximum of {count} subscriptions. `unsubscribe #n` makes room.",
            self.limit,
        )


class NewUrlsUsedUp(Refusal, frozen=True):
    """No more than ``limit`` new URLs an hour."""

    limit: int

    def _text(self, voice: Voice) -> str:
        return voice.many(
            "That's more than {count} new URL in an hour. Please try again later; everything else works as usual.",
            "That's more than {count} new URLs in an hour. Please try again later; everything else works as usual.",
            self.limit,
        )


class Listing(Reply, frozen=True):
    """``found`` of ``total`` subscriptions match ``wanted``; too many for their URLs are named by title alone."""

    found: tuple[Followed, ...]
    total: int
    wanted: str

    def _text(self, voice: Voice) -> str:
        if not self.total:
            return voice.say(_NO_SUBSCRIPTIONS)
        if not self.found:
            return voice.many(
                "Your {count} subscription doesn't contain “{wanted}”. `list` shows it.",
                "None of your {count} subscriptions contains “{wanted}”. `list` shows them all.",
                self.total,
                wanted=one_line(self.wanted, 40),
            )
        head = self._head(voice)
        rows = [_row(followed, voice) for followed in self.found]
        urls = [one_line(address(followed.channel), 200) for followed in self.found]
        full = "\n".join([head, *(f"{row}\n    {url}" for row, url in zip(rows, urls, strict=True))])
        if len(full.encode()) <= LONGEST_MESSAGE_BYTES:
            return full
        return fitted(head, rows, voice, voice.say("Narrow it down with `list word`."))

    def _head(self, voice: Voice) -> str:
        if not self.wanted:
            return voice.many("{count} subscription:", "{count} subscriptions:", self.total)
        return voice.many(
            "{found} of {count} subscription:", "{found} of {count} subscriptions:", self.total, found=len(self.found)
        )


def _row(followed: Followed, voice: Voice) -> str:
    name, number = title(followed.channel), str(followed.number)
    if followed.paused:
        return voice.say("#{number} {title} (paused)", number=number, title=name)
    if followed.muted:
        return voice.say("#{number} {title} (muted)", number=number, title=name)
    return f"#{number} {name}"


class Shown(Reply, frozen=True):
    """A channel's latest entries, newest first."""

    followed: Followed
    entries: tuple[Entry, ...]

    def _text(self, voice: Voice) -> str:
        head = f"*{title(self.followed.channel)}* (#{self.followed.number})"
        if not self.entries:
            return "\n".join([head, voice.say("It's empty so far.")])
        is_page = self.followed.channel.kind == "page"
        rows = [joined_lines(entry.summary, 300) if is_page else entry_lines(entry, voice) for entry in self.entries]
        return fitted(head, rows, voice)


class Reasoned(Reply, frozen=True):
    """Why a channel is polled as it is, said at ``now_s`` (Unix time).

    ``node`` is the URI of where it is published for everybody, or "".
    """

    followed: Followed
    reason: PollExplanation
    now_s: float
    node: str = ""

    def _text(self, voice: Voice) -> str:
        reason, workers = self.reason, len(self.reason.turns)
        lines = [
            voice.many(
                "*{title}* (#{number}) is checked every {interval} by one worker.",
                "*{title}* (#{number}) is checked every {interval} by {count} workers taking turns.",
                workers,
                title=title(self.followed.channel),
                number=str(self.followed.number),
                interval=voice.span(reason.interval_s / workers),
            ),
            self._awaited(voice),
            voice.say(_BINDING[reason.bound]),
            voice.say(
                "It seems to have something new about every {interval}.",
                interval=voice.span(reason.update_interval_s),
            ),
        ]
        if self.node:
            lines.append(voice.say("Anyone can read it as a pubsub node: {uri}", uri=self.node))
        return "\n".join(lines)

    def _awaited(self, voice: Voice) -> str:
        wait, next_s = voice.span(self.reason.wait_s), min(turn.next_poll_s for turn in self.reason.turns) - self.now_s
        if next_s < 1:
            return voice.say("News reaches you after about {wait}. The next check is due now.", wait=wait)
        return voice.say(
            "News reaches you after about {wait}. The next check is in {time}.",
            wait=wait,
            time=voice.span(next_s),
        )


class StatusReport(Reply, frozen=True):
    """How all is, said at ``now_s`` (Unix time).

    ``failing``: subscription, outcome of its last poll, and since when (Unix s).
    """

    count: int
    workers: int
    failing: tuple[tuple[Followed, str, float], ...]
    now_s: float

    def _text(self, voice: Voice) -> str:
        if not self.workers:
            return voice.say(
                "No worker is running right now, so nothing is being checked. I'll catch up as soon as one is back."
            )
        workers = voice.many("{count} worker is running", "{count} workers are running", self.workers)
        head = voice.many(
            "You have {count} subscription; {workers}.", "You have {count} subscriptions; {workers}.", self.count,
            workers=workers,
        )  # fmt: skip
        if not self.count:
            return " ".join([head, voice.say("Send me a URL to add one.")])
        if not self.failing:
            return " ".join([head, voice.say("Everything is working.")])
        rows = [
            voice.say(
                "#{number} {title}: {problem} (for {age})",
                number=str(followed.number), title=title(followed.channel), problem=outcome(code, voice),
                age=voice.span(self.now_s - since_s),
            )
            for followed, code, since_s in self.failing
        ]  # fmt: skip
        ill = voice.many(
            "{count} have problems; I'll keep trying:", "{count} have problems; I'll keep trying:", len(rows)
        )
        return fitted(f"{head} {ill}", rows, voice)


class Exported(Reply, frozen=True):
    """A person's subscriptions as OPML documents, each of which fits a message; ``refused``: no file, for that.

    Nothing else stands in the message of a document, so that it can be taken as it is.
    """

    documents: tuple[str, ...]
    count: int
    refused: UploadRefused | None = None

    def _text(self, voice: Voice) -> str:
        return self.documents[0] if self.documents else voice.say(_NO_SUBSCRIPTIONS)

    def _others(self, voice: Voice) -> tuple[str, ...]:
        if self.refused is None:
            return self.documents[1:]
        why = voice.say(
            "Your list comes in {count} messages, each of which can be imported on its own, because the server "
            "didn't accept a file. {detail}",
            count=len(self.documents),
            detail=one_line(str(self.refused), 300),
        )
        return (*self.documents[1:], why)


class ExportedAsFile(Reply, frozen=True):
    """A person's subscriptions as one OPML document, which lies at this URL.

    The URL is a message of its own: only so do clients show it as a file.
    """

    url: str
    count: int

    def _text(self, voice: Voice) -> str:
        return voice.many(
            "Here's your list of {count} subscription (OPML), for other readers or for `import`; the server keeps "
            "it for a while:",
            "Here's your list of {count} subscriptions (OPML), for other readers or for `import`; the server keeps "
            "it for a while:",
            self.count,
        )

    def _others(self, _voice: Voice) -> tuple[str, ...]:
        return (self.url,)


class ImportBegun(Reply, frozen=True):
    """So many feeds of a list are being subscribed to; and what is wrong with it."""

    count: int
    problems: tuple[str, ...]

    def _text(self, voice: Voice) -> str:
        if not self.count:
            head = voice.say("I found no feeds in that list.")
        else:
            head = voice.many(
                "I found {count} feed in that list and am checking it now. I'll let you know when I'm done.",
                "I found {count} feeds in that list and am checking them one by one. I'll let you know when I'm done.",
                self.count,
            )
        return fitted(head, [one_line(problem, 200) for problem in self.problems[:_MOST_PROBLEMS]], voice)


class Imported(Reply, frozen=True):
    """What came of a list: new subscriptions, those that were there, and what failed, each with its address."""

    new: int = 0
    known: int = 0
    failed: tuple[tuple[str, CoronetError], ...] = ()

    def and_also(self, other: "Imported") -> "Imported":
        """Return both together."""
        return Imported(self.new + other.new, self.known + other.known, self.failed + other.failed)

    def _text(self, voice: Voice) -> str:
        head = voice.many(
            "Your list is imported: {count} new subscription.",
            "Your list is imported: {count} new subscriptions.",
            self.new,
        )
        if self.known:
            known = voice.many("You already had {count}.", "You already had {count}.", self.known)
            head = f"{head} {known}"
        if not self.failed:
            return head
        failed = voice.many("{count} couldn't be added:", "{count} couldn't be added:", len(self.failed))
        rows = [sentence(error, one_line(url, 200), voice) for url, error in self.failed]
        return fitted(f"{head} {failed}", rows, voice)
