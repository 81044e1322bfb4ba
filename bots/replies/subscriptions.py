"""Replies about subscriptions: how they begin and end, which there are, how they fare, lists of them in and out."""

from typing import Final

from bots.i18n.translator import Translator, gettext_noop
from bots.replies.base import (
    MAX_MESSAGE_BYTES,
    FailureReply,
    QuestionReply,
    Reply,
    SubscribedChannel,
    address,
    entry_lines,
    fit_rows,
    join_lines,
    title,
)
from bots.replies.errors import error_text, outcome_text
from bots.replies.settings import chosen
from service.corona.poll_explanation import BindingConstraint, PollExplanation
from service.errors import CoronetError, UploadRefused
from service.feeds.parsing.html_text import one_line
from service.model import Entry, FeedLink
from service.users.preferences import NO_PREFERENCES, Preferences

InitialSettings = tuple[tuple[str, str], ...]
"""Settings that were asked for with a subscription, each with its value, as they were written."""

_MAX_PROBLEMS = 10
_NO_SUBSCRIPTIONS: Final = gettext_noop(
    "You have no subscriptions yet. Send me the address of a site or feed to start."
)

_REASON_OF_CONSTRAINT: Final = {
    BindingConstraint.NONE: gettext_noop("That is its fair share of the available checks."),
    BindingConstraint.LONGEST_WAIT: gettext_noop("It is checked often enough that nobody has to wait too long."),
    BindingConstraint.CHANNEL_WAIT: gettext_noop("An admin has set how long you may have to wait for its news."),
    BindingConstraint.CHANNEL_INTERVAL: gettext_noop("An admin has set how often it may be checked."),
    BindingConstraint.NODES: gettext_noop("To check it more often, more workers are needed."),
    BindingConstraint.CHANNEL_BUDGET: gettext_noop("Out of politeness to its publisher, it isn't checked more often."),
    BindingConstraint.HOST_BUDGET: gettext_noop(
        "Out of politeness to its site, which has other channels as well, it isn't checked more often."
    ),
    BindingConstraint.FLEET_BUDGET: gettext_noop(
        "There aren't enough checks for all channels right now, so it gets fewer than usual."
    ),
}


class SubscribeReply(Reply, frozen=True):
    """It is watched. ``latest`` is the proof, newest first; None if the person wants none.

    ``discovered`` says that the URL was a page which named this feed, ``moved`` that the channel went to another URL;
    ``preferences`` are what was asked for with it.
    """

    followed: SubscribedChannel
    new: bool
    latest: tuple[Entry, ...] | None
    discovered: bool = False
    moved: bool = False
    preferences: Preferences = NO_PREFERENCES

    def _text(self, translator: Translator) -> str:
        head = self._begun(translator)
        if self.followed.channel.kind == "page":
            head = translator.gettext("{subscribed} I'll let you know when it changes.", subscribed=head)
        return "\n".join([head, *chosen(self.preferences, translator), *self._proof(translator)])

    def _begun(self, translator: Translator) -> str:
        name, number = title(self.followed.channel), str(self.followed.number)
        if not self.new:
            return translator.gettext("You're already subscribed to *{title}* (#{number}).", title=name, number=number)
        if self.moved:
            return translator.gettext(
                "It has moved to {url}. Subscribed to *{title}* (#{number}).",
                url=one_line(self.followed.channel.url, 2000),
                title=name,
                number=number,
            )
        if self.discovered:
            return translator.gettext(
                "I found a feed on that page. Subscribed to *{title}* (#{number}).",
                title=name,
                number=number,
            )
        return translator.gettext("Subscribed to *{title}* (#{number}).", title=name, number=number)

    def _proof(self, translator: Translator) -> list[str]:
        """Return what is there now, as far as it is wanted."""
        if self.latest is None:
            return []
        if self.followed.channel.kind == "page":
            seen = (join_lines(entry.summary, 200) for entry in self.latest[:1])
            return [translator.gettext("Right now it says: {text}", text=text) for text in seen]
        if not self.latest:
            return [translator.gettext("It's empty so far; I'll let you know when something appears.")]
        head = translator.ngettext("Latest entry:", "Latest {count} entries:", len(self.latest))
        return [head, *(entry_lines(entry, translator) for entry in self.latest)]


class ChooseFeed(QuestionReply, frozen=True):
    """Asks which of a page's feeds is meant; ``settings`` are what was asked for with it."""

    options: tuple[FeedLink, ...]
    settings: InitialSettings = ()

    def _text(self, translator: Translator) -> str:
        untitled = translator.gettext("Feed")
        options = [
            f"{i}. {one_line(option.title, 80) or untitled}: {one_line(option.url, 300)}"
            for i, option in enumerate(self.options[:10], 1)
        ]
        asked = translator.gettext(
            "That page has several feeds. Which one would you like? Reply with its number, or `cancel`."
        )
        return "\n".join([asked, *options])


class OfferPageMonitoring(QuestionReply, frozen=True):
    """Asks whether to watch the page itself at this canonical URL, which names no feed; ``settings`` as above."""

    url: str
    settings: InitialSettings = ()

    def _text(self, translator: Translator) -> str:
        return translator.gettext(
            "There's no feed at {url}. Shall I monitor the page itself and let you know when it changes? (`yes` or "
            "`no`)",
            url=one_line(self.url, 300),
        )  # fmt: skip


class ConfirmUnsubscribeAll(QuestionReply, frozen=True):
    """Asks whether to end all ``count`` subscriptions."""

    count: int

    def _text(self, translator: Translator) -> str:
        return translator.ngettext(
            "Really end your only subscription? Reply `yes` or `no`.",
            "Really end all {count} subscriptions? Reply `yes` or `no`.",
            self.count,
        )


class ChooseSubscription(QuestionReply, frozen=True):
    """Asks which of the channels is meant that a message told of.

    ``command`` has ``{}`` where the number is to stand.
    """

    command: str
    options: tuple[SubscribedChannel, ...]

    def _text(self, translator: Translator) -> str:
        rows = [f"#{option.number} {title(option.channel)}" for option in self.options]
        head = translator.gettext(
            "That message was about several channels. Which one do you mean? Reply with its number, or `cancel`."
        )
        return fit_rows(head, rows, translator)


class MessageForgotten(Reply, frozen=True):
    """We do not know any more what the message told that was reacted to."""

    sentence = gettext_noop(
        "I no longer know what that message was about. `list` shows your subscriptions and their numbers."
    )


class UnsubscribeReply(Reply, frozen=True):
    """These were ended."""

    ended: tuple[SubscribedChannel, ...]

    def _text(self, translator: Translator) -> str:
        if len(self.ended) == 1:
            ended = self.ended[0]
            return translator.gettext(
                "Unsubscribed from *{title}* (#{number}). To undo, send: subscribe {url}",
                title=title(ended.channel),
                number=str(ended.number),
                url=address(ended.channel),
            )
        return translator.ngettext(
            "Unsubscribed from {count} channel. Send me a URL to start again.",
            "Unsubscribed from all {count} channels. Send me a URL to start again.",
            len(self.ended),
        )


class NoSuchSubscription(FailureReply, frozen=True):
    """Not found, or not yours: one answer for both."""

    sentence = gettext_noop("I can't find that subscription. `list` shows the ones you have.")


class TooManySubscriptions(FailureReply, frozen=True):
    """No more than ``limit`` subscriptions."""

    limit: int

    def _text(self, translator: Translator) -> str:
        return translator.ngettext(
            "You've reached the maximum of {count} subscription. `unsubscribe #n` makes room.",
            "You've reached the maximum of {count} subscriptions. `unsubscribe #n` makes room.",
            self.limit,
        )


class TooManyNewUrls(FailureReply, frozen=True):
    """No more than ``limit`` new URLs an hour."""

    limit: int

    def _text(self, translator: Translator) -> str:
        return translator.ngettext(
            "That's more than {count} new URL in an hour. Please try again later; everything else works as usual.",
            "That's more than {count} new URLs in an hour. Please try again later; everything else works as usual.",
            self.limit,
        )


class SubscriptionList(Reply, frozen=True):
    """``found`` of ``total`` subscriptions match ``wanted``; too many for their URLs are named by title alone."""

    found: tuple[SubscribedChannel, ...]
    total: int
    wanted: str

    def _text(self, translator: Translator) -> str:
        if not self.total:
            return translator.gettext(_NO_SUBSCRIPTIONS)
        if not self.found:
            return translator.ngettext(
                "Your {count} subscription doesn't contain “{wanted}”. `list` shows it.",
                "None of your {count} subscriptions contains “{wanted}”. `list` shows them all.",
                self.total,
                wanted=one_line(self.wanted, 40),
            )
        head = self._head(translator)
        rows = [_row(followed, translator) for followed in self.found]
        urls = [one_line(address(followed.channel), 200) for followed in self.found]
        full = "\n".join([head, *(f"{row}\n    {url}" for row, url in zip(rows, urls, strict=True))])
        if len(full.encode()) <= MAX_MESSAGE_BYTES:
            return full
        return fit_rows(head, rows, translator, translator.gettext("Narrow it down with `list word`."))

    def _head(self, translator: Translator) -> str:
        if not self.wanted:
            return translator.ngettext("{count} subscription:", "{count} subscriptions:", self.total)
        return translator.ngettext(
            "{found} of {count} subscription:", "{found} of {count} subscriptions:", self.total, found=len(self.found)
        )


def _row(followed: SubscribedChannel, translator: Translator) -> str:
    name, number = title(followed.channel), str(followed.number)
    if followed.paused:
        return translator.gettext("#{number} {title} (paused)", number=number, title=name)
    if followed.muted:
        return translator.gettext("#{number} {title} (muted)", number=number, title=name)
    return f"#{number} {name}"


class LatestEntries(Reply, frozen=True):
    """A channel's latest entries, newest first."""

    followed: SubscribedChannel
    entries: tuple[Entry, ...]

    def _text(self, translator: Translator) -> str:
        head = f"*{title(self.followed.channel)}* (#{self.followed.number})"
        if not self.entries:
            return "\n".join([head, translator.gettext("It's empty so far.")])
        is_page = self.followed.channel.kind == "page"
        rows = [join_lines(entry.summary, 300) if is_page else entry_lines(entry, translator) for entry in self.entries]
        return fit_rows(head, rows, translator)


class PollExplanationReply(Reply, frozen=True):
    """Why a channel is polled as it is, said at ``now_s`` (Unix time).

    ``node`` is the URI of where it is published for everybody, or "".
    """

    followed: SubscribedChannel
    reason: PollExplanation
    now_s: float
    node: str = ""

    def _text(self, translator: Translator) -> str:
        reason, workers = self.reason, len(self.reason.turns)
        lines = [
            translator.ngettext(
                "*{title}* (#{number}) is checked every {interval} by one worker.",
                "*{title}* (#{number}) is checked every {interval} by {count} workers taking turns.",
                workers,
                title=title(self.followed.channel),
                number=str(self.followed.number),
                interval=translator.format_duration(reason.interval_s / workers),
            ),
            self._awaited(translator),
            translator.gettext(_REASON_OF_CONSTRAINT[reason.bound]),
            translator.gettext(
                "It seems to have something new about every {interval}.",
                interval=translator.format_duration(reason.update_interval_s),
            ),
        ]
        if self.node:
            lines.append(translator.gettext("Anyone can read it as a pubsub node: {uri}", uri=self.node))
        return "\n".join(lines)

    def _awaited(self, translator: Translator) -> str:
        wait, next_s = (
            translator.format_duration(self.reason.wait_s),
            min(turn.next_poll_s for turn in self.reason.turns) - self.now_s,
        )
        if next_s < 1:
            return translator.gettext("News reaches you after about {wait}. The next check is due now.", wait=wait)
        return translator.gettext(
            "News reaches you after about {wait}. The next check is in {time}.",
            wait=wait,
            time=translator.format_duration(next_s),
        )


class StatusReport(Reply, frozen=True):
    """How all is, said at ``now_s`` (Unix time).

    ``failing``: subscription, outcome of its last poll, and since when (Unix s).
    """

    count: int
    workers: int
    failing: tuple[tuple[SubscribedChannel, str, float], ...]
    now_s: float

    def _text(self, translator: Translator) -> str:
        if not self.workers:
            return translator.gettext(
                "No worker is running right now, so nothing is being checked. I'll catch up as soon as one is back."
            )
        workers = translator.ngettext("{count} worker is running", "{count} workers are running", self.workers)
        head = translator.ngettext(
            "You have {count} subscription; {workers}.", "You have {count} subscriptions; {workers}.", self.count,
            workers=workers,
        )  # fmt: skip
        if not self.count:
            return " ".join([head, translator.gettext("Send me a URL to add one.")])
        if not self.failing:
            return " ".join([head, translator.gettext("Everything is working.")])
        rows = [
            translator.gettext(
                "#{number} {title}: {problem} (for {age})",
                number=str(followed.number), title=title(followed.channel), problem=outcome_text(code, translator),
                age=translator.format_duration(self.now_s - since_s),
            )
            for followed, code, since_s in self.failing
        ]  # fmt: skip
        ill = translator.ngettext(
            "{count} have problems; I'll keep trying:", "{count} have problems; I'll keep trying:", len(rows)
        )
        return fit_rows(f"{head} {ill}", rows, translator)


class ExportReply(Reply, frozen=True):
    """A person's subscriptions as OPML documents, each of which fits a message; ``refused``: no file, for that.

    Nothing else stands in the message of a document, so that it can be taken as it is.
    """

    documents: tuple[str, ...]
    count: int
    refused: UploadRefused | None = None

    def _text(self, translator: Translator) -> str:
        return self.documents[0] if self.documents else translator.gettext(_NO_SUBSCRIPTIONS)

    def _further_texts(self, translator: Translator) -> tuple[str, ...]:
        if self.refused is None:
            return self.documents[1:]
        why = translator.gettext(
            "Your list comes in {count} messages, each of which can be imported on its own, because the server "
            "didn't accept a file. {detail}",
            count=len(self.documents),
            detail=one_line(str(self.refused), 300),
        )
        return (*self.documents[1:], why)


class ExportFileReply(Reply, frozen=True):
    """A person's subscriptions as one OPML document, which lies at this URL.

    The URL is a message of its own: only so do clients show it as a file.
    """

    url: str
    count: int

    def _text(self, translator: Translator) -> str:
        return translator.ngettext(
            "Here's your list of {count} subscription (OPML), for other readers or for `import`; the server keeps "
            "it for a while:",
            "Here's your list of {count} subscriptions (OPML), for other readers or for `import`; the server keeps "
            "it for a while:",
            self.count,
        )

    def _further_texts(self, _translator: Translator) -> tuple[str, ...]:
        return (self.url,)


class ImportStarted(Reply, frozen=True):
    """So many feeds of a list are being subscribed to; and what is wrong with it."""

    count: int
    problems: tuple[str, ...]

    def _text(self, translator: Translator) -> str:
        if not self.count:
            head = translator.gettext("I found no feeds in that list.")
        else:
            head = translator.ngettext(
                "I found {count} feed in that list and am checking it now. I'll let you know when I'm done.",
                "I found {count} feeds in that list and am checking them one by one. I'll let you know when I'm done.",
                self.count,
            )
        return fit_rows(head, [one_line(problem, 200) for problem in self.problems[:_MAX_PROBLEMS]], translator)


class ImportResult(Reply, frozen=True):
    """What came of a list: new subscriptions, those that were there, and what failed, each with its address."""

    new: int = 0
    known: int = 0
    failed: tuple[tuple[str, CoronetError], ...] = ()

    def and_also(self, other: "ImportResult") -> "ImportResult":
        """Return both together."""
        return ImportResult(self.new + other.new, self.known + other.known, self.failed + other.failed)

    def _text(self, translator: Translator) -> str:
        head = translator.ngettext(
            "Your list is imported: {count} new subscription.",
            "Your list is imported: {count} new subscriptions.",
            self.new,
        )
        if self.known:
            known = translator.ngettext("You already had {count}.", "You already had {count}.", self.known)
            head = f"{head} {known}"
        if not self.failed:
            return head
        failed = translator.ngettext("{count} couldn't be added:", "{count} couldn't be added:", len(self.failed))
        rows = [error_text(error, one_line(url, 200), translator) for url, error in self.failed]
        return fit_rows(f"{head} {failed}", rows, translator)
