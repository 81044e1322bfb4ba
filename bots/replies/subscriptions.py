"""Replies about subscriptions: subscribe and unsubscribe, lists, status, and export and import as OPML."""

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
from bots.replies.settings import changed_settings
from service.corona.optimizer.poll_explanation import BindingConstraint, PollExplanation
from service.errors import CoronetError, UploadRefused
from service.feeds.parsing.html_text import one_line
from service.model import Entry, FeedLink
from service.users.preferences import NO_PREFERENCES, Preferences

InitialSettings = tuple[tuple[str, str], ...]
"""Settings in a subscribe command: names and values as the user typed them."""

_MAX_PROBLEMS = 10
_NOTABLE_SPEED: Final = 1.5
"""Factor by which polls at this hour differ from the average of the week if a reply mentions it."""
_NO_SUBSCRIPTIONS: Final = gettext_noop("You have no subscriptions. Send me the address of a site or feed to start.")

_REASON_OF_CONSTRAINT: Final = {
    BindingConstraint.NONE: gettext_noop(
        "To go easy on sites, the number of checks is limited."
        " A channel gets more of them the more it publishes and the more people follow it."
    ),
    BindingConstraint.LONGEST_WAIT: gettext_noop("It is checked often enough that nobody has to wait too long."),
    BindingConstraint.CHANNEL_WAIT: gettext_noop("An admin has set how long you may have to wait for new entries."),
    BindingConstraint.CHANNEL_INTERVAL: gettext_noop("An admin has set how often it may be checked."),
    BindingConstraint.FAILURE: gettext_noop("It is checked less often until it can be reached again."),
    BindingConstraint.PAUSE: gettext_noop("The site or an admin asked for a pause until the next check."),
    BindingConstraint.NODES: gettext_noop("To check it more often, more workers are needed."),
    BindingConstraint.HOST_BUDGET: gettext_noop(
        "Out of politeness to its site, which has other channels as well, it isn't checked more often."
    ),
    BindingConstraint.FLEET_BUDGET: gettext_noop(
        "There aren't enough checks for all channels right now, so it gets fewer than usual."
    ),
}
"""The sentences without placeholders; :meth:`PollExplanationReply._reason` has the others."""


class SubscribeReply(Reply, frozen=True):
    """Says that the user is subscribed to a channel, and shows its latest entries.

    ``latest`` are these entries, newest first; None if the user does not want to see any. ``discovered`` states whether
    the feed was found through the page at the URL in the command, and ``moved`` whether the channel has moved to
    another URL. ``preferences`` are the settings in the command.
    """

    subscription: SubscribedChannel
    new: bool
    latest: tuple[Entry, ...] | None
    discovered: bool = False
    moved: bool = False
    preferences: Preferences = NO_PREFERENCES

    def _text(self, translator: Translator) -> str:
        head = self._head(translator)
        if self.subscription.channel.kind == "page":
            head = translator.gettext("{subscribed} I'll let you know when it changes.", subscribed=head)
        return "\n".join([head, *changed_settings(self.preferences, translator), *self._latest_lines(translator)])

    def _head(self, translator: Translator) -> str:
        name, number = title(self.subscription.channel), str(self.subscription.number)
        if not self.new:
            return translator.gettext("You're already subscribed to *{title}* (#{number}).", title=name, number=number)
        if self.moved:
            return translator.gettext(
                "It has moved to {url}. Subscribed to *{title}* (#{number}).",
                url=one_line(self.subscription.channel.url, 2000),
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

    def _latest_lines(self, translator: Translator) -> list[str]:
        """Return the lines that show the latest entries."""
        if self.latest is None:
            return []
        if self.subscription.channel.kind == "page":
            seen = (join_lines(entry.summary, 200) for entry in self.latest[:1])
            return [translator.gettext("Right now it says: {text}", text=text) for text in seen]
        if not self.latest:
            return [translator.gettext("It's empty so far; I'll let you know when something appears.")]
        head = translator.ngettext("Latest entry:", "Latest {count} entries:", len(self.latest))
        return [head, *(entry_lines(entry, translator) for entry in self.latest)]


class ChooseFeed(QuestionReply, frozen=True):
    """Asks to which of the feeds of a page to subscribe.

    ``settings`` are the settings of the new subscription that the user gave in the command.
    """

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
    """Asks whether to monitor a page that has no feed; ``url`` is the canonical URL of the page.

    ``settings`` are the settings of the new subscription that the user gave in the command.
    """

    url: str
    settings: InitialSettings = ()

    def _text(self, translator: Translator) -> str:
        return translator.gettext(
            "There's no feed at {url}. Shall I monitor the page itself and let you know when it changes? (`yes` or "
            "`no`)",
            url=one_line(self.url, 300),
        )  # fmt: skip


class ConfirmUnsubscribeAll(QuestionReply, frozen=True):
    """Asks whether to end all ``count`` subscriptions of the user."""

    count: int

    def _text(self, translator: Translator) -> str:
        if self.count == 2:  # noqa: PLR2004 - both
            return translator.gettext("End both of your subscriptions? Reply `yes` or `no`.")
        return translator.ngettext(
            "End your only subscription? Reply `yes` or `no`.",
            "End all {count} of your subscriptions? Reply `yes` or `no`.",
            self.count,
        )


class ChooseSubscription(QuestionReply, frozen=True):
    """Asks the user to choose one of several channels, because a command refers to a message about all of them.

    ``command`` is the command with ``{}`` in place of the number of the subscription.
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
    """Says that the bot no longer remembers the message to which the user reacted."""

    sentence = gettext_noop(
        "I no longer know what that message was about. `list` shows your subscriptions and their numbers."
    )


class UnsubscribeReply(Reply, frozen=True):
    """Says which subscriptions were ended."""

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
        if len(self.ended) == 2:  # noqa: PLR2004 - both
            return translator.gettext("I've ended both of your subscriptions. Send me a URL to start again.")
        return translator.ngettext(
            "I've ended your only subscription. Send me a URL to start again.",
            "I've ended all {count} of your subscriptions. Send me a URL to start again.",
            len(self.ended),
        )


class NoSuchSubscription(FailureReply, frozen=True):
    """Says that no subscription of the user has the number or URL in the command."""

    sentence = gettext_noop("I can't find that subscription. `list` shows the ones you have.")


class TooManySubscriptions(FailureReply, frozen=True):
    """Says that the user already has ``limit`` subscriptions, which is the maximum."""

    limit: int

    def _text(self, translator: Translator) -> str:
        return translator.ngettext(
            "You've reached the maximum of {count} subscription. `unsubscribe #n` makes room.",
            "You've reached the maximum of {count} subscriptions. `unsubscribe #n` makes room.",
            self.limit,
        )


class TooManyNewUrls(FailureReply, frozen=True):
    """Says that the user has subscribed to ``limit`` new URLs within an hour, which is the maximum."""

    limit: int

    def _text(self, translator: Translator) -> str:
        return translator.ngettext(
            "You've reached the limit of {count} new URL an hour. Please try again later; everything else works as "
            "usual.",
            "You've reached the limit of {count} new URLs an hour. Please try again later; everything else works as "
            "usual.",
            self.limit,
        )


class SubscriptionList(Reply, frozen=True):
    """Lists the user's subscriptions whose title or URL contains ``needle``; a long list does not show their URLs.

    ``total`` is the number of all subscriptions of the user.
    """

    matches: tuple[SubscribedChannel, ...]
    total: int
    needle: str

    def _text(self, translator: Translator) -> str:
        if not self.total:
            return translator.gettext(_NO_SUBSCRIPTIONS)
        if not self.matches:
            return translator.ngettext(
                "Your {count} subscription doesn't contain “{wanted}”. `list` shows it.",
                "None of your {count} subscriptions contains “{wanted}”. `list` shows them all.",
                self.total,
                wanted=one_line(self.needle, 40),
            )
        head = self._head(translator)
        rows = [_row(subscription, translator) for subscription in self.matches]
        urls = [one_line(address(subscription.channel), 200) for subscription in self.matches]
        full = "\n".join([head, *(f"{row}\n    {url}" for row, url in zip(rows, urls, strict=True))])
        if len(full.encode()) <= MAX_MESSAGE_BYTES:
            return full
        return fit_rows(head, rows, translator, translator.gettext("Narrow it down with `list word`."))

    def _head(self, translator: Translator) -> str:
        if not self.needle:
            return translator.ngettext("{count} subscription:", "{count} subscriptions:", self.total)
        return translator.gettext(
            "Subscriptions with “{wanted}” ({found} of {count}):",
            wanted=one_line(self.needle, 40), found=len(self.matches), count=self.total,
        )  # fmt: skip


def _row(subscription: SubscribedChannel, translator: Translator) -> str:
    name, number = title(subscription.channel), str(subscription.number)
    if subscription.paused:
        return translator.gettext("#{number} {title} (paused)", number=number, title=name)
    if subscription.muted:
        return translator.gettext("#{number} {title} (muted)", number=number, title=name)
    return f"#{number} {name}"


class LatestEntries(Reply, frozen=True):
    """Shows a channel's latest entries, newest first."""

    subscription: SubscribedChannel
    entries: tuple[Entry, ...]

    def _text(self, translator: Translator) -> str:
        head = f"*{title(self.subscription.channel)}* (#{self.subscription.number})"
        if not self.entries:
            return "\n".join([head, translator.gettext("It's empty so far.")])
        is_page = self.subscription.channel.kind == "page"
        rows = [join_lines(entry.summary, 300) if is_page else entry_lines(entry, translator) for entry in self.entries]
        return fit_rows(head, rows, translator)


class PollExplanationReply(Reply, frozen=True):
    """Says how often a channel is polled, and why.

    ``now_s`` is the current Unix time. ``node_uri`` is the URI of the channel's pubsub node, or "" if it has none.
    ``failing_since_s`` is the Unix time of the first failed poll; None if the last poll succeeded.
    """

    subscription: SubscribedChannel
    explanation: PollExplanation
    now_s: float
    node_uri: str = ""
    failing_since_s: float | None = None

    def _text(self, translator: Translator) -> str:
        lines = [
            self._frequency(translator),
            self._wait(translator),
            self._reason(translator),
            *self._rhythm(translator),
            translator.gettext(
                "Something new seems to appear about {frequency}.",
                frequency=translator.format_frequency(self.explanation.update_interval_s),
            ),
        ]
        if self.node_uri:
            lines.append(translator.gettext("Anyone can read it as a pubsub node: {uri}", uri=self.node_uri))
        return "\n".join(lines)

    def _frequency(self, translator: Translator) -> str:
        explanation, name, number = self.explanation, title(self.subscription.channel), str(self.subscription.number)
        frequency = translator.format_frequency(explanation.gap_s)
        if explanation.ring_nodes == 1:
            return translator.gettext(
                "*{title}* (#{number}) is checked {frequency}, by one worker.",
                title=name, number=number, frequency=frequency,
            )  # fmt: skip
        return translator.ngettext(
            "*{title}* (#{number}) is checked {frequency}, by one of {workers} workers.",
            "*{title}* (#{number}) is checked {frequency}, by {count} of {workers} workers taking turns.",
            explanation.nodes,
            title=name, number=number, frequency=frequency, workers=explanation.ring_nodes,
        )  # fmt: skip

    def _wait(self, translator: Translator) -> str:
        wait = translator.format_duration(self.explanation.wait_s)
        next_s = self.explanation.next_poll_s() - self.now_s
        if next_s < 1:
            return translator.gettext(
                "New entries usually reach you in about {wait}. The next check is due now.", wait=wait
            )
        return translator.gettext(
            "New entries usually reach you in about {wait}. The next check is in {time}.",
            wait=wait,
            time=translator.format_duration(next_s),
        )

    def _rhythm(self, translator: Translator) -> list[str]:
        """Return a sentence on the polls at this hour if they differ clearly from those of the whole week."""
        speed = self.explanation.present_speed
        if speed >= _NOTABLE_SPEED:
            return [
                translator.gettext(
                    "It is checked more often around this time, because something new usually appears then."
                )
            ]
        if speed <= 1 / _NOTABLE_SPEED:
            return [
                translator.gettext(
                    "It is checked less often around this time, because something new rarely appears then."
                )
            ]
        return []

    def _reason(self, translator: Translator) -> str:
        explanation = self.explanation
        match explanation.bound:
            case BindingConstraint.CHANNEL_BUDGET:
                return translator.ngettext(
                    "Out of politeness to its publisher, a channel with {count} subscriber isn't checked more often.",
                    "Out of politeness to its publisher, a channel with {count} subscribers isn't checked more often.",
                    explanation.subscribers,
                )
            case BindingConstraint.PUBLISHER:
                return translator.gettext(
                    "Its publisher asks that it isn't checked more often than {frequency}.",
                    frequency=translator.format_frequency(explanation.publisher_interval_s),
                )
            case BindingConstraint.FAILURE if self.failing_since_s is not None:
                return translator.gettext(
                    "Checks have been failing for {age}, so I check less and less often until one succeeds.",
                    age=translator.format_duration(self.now_s - self.failing_since_s),
                )
            case bound:
                return translator.gettext(_REASON_OF_CONSTRAINT[bound])


class StatusReport(Reply, frozen=True):
    """Says which of the user's channels cannot be polled; ``now_s`` is the current Unix time.

    ``failing`` are the subscriptions whose polls fail. Each has the outcome of its last poll, and the Unix time of the
    first of the failures.
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
            return " ".join([head, translator.gettext("Send me a URL to add a subscription.")])
        if not self.failing:
            return " ".join([head, translator.gettext("Everything is working.")])
        rows = [
            translator.gettext(
                "#{number} {title}: {problem} (for {age})",
                number=str(subscription.number), title=title(subscription.channel),
                problem=outcome_text(code, translator),
                age=translator.format_duration(self.now_s - since_s),
            )
            for subscription, code, since_s in self.failing
        ]  # fmt: skip
        problem_count = translator.ngettext(
            "{count} have problems; I'll keep trying:", "{count} have problems; I'll keep trying:", len(rows)
        )
        return fit_rows(f"{head} {problem_count}", rows, translator)


class ExportReply(Reply, frozen=True):
    """Contains the subscriptions as OPML documents, each of which fits into one message.

    Each document is a message without other text, so that the user can save it unchanged. ``count`` is the number of
    subscriptions. ``refused`` is the error with which the XMPP server refused the upload of the list; None if no upload
    was tried.
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
    """Contains ``url``, the URL of one OPML document with the user's ``count`` subscriptions.

    The URL is sent as a separate message, because only then do clients show it as a file.
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
    """Says that the import of a list with ``count`` feeds has begun; ``problems`` are the errors in the list."""

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
    """Says how an import ended: the numbers of new and of existing subscriptions, and the feeds that failed.

    ``failed`` has pairs (URL of a feed, error).
    """

    new: int = 0
    existing: int = 0
    failed: tuple[tuple[str, CoronetError], ...] = ()

    def merge(self, other: "ImportResult") -> "ImportResult":
        """Return a result with the sums of both results' numbers, and the failed feeds of both."""
        return ImportResult(self.new + other.new, self.existing + other.existing, self.failed + other.failed)

    def _text(self, translator: Translator) -> str:
        head = translator.ngettext(
            "Your list is imported: {count} new subscription.",
            "Your list is imported: {count} new subscriptions.",
            self.new,
        )
        if self.existing:
            existing = translator.ngettext("You already had {count}.", "You already had {count}.", self.existing)
            head = f"{head} {existing}"
        if not self.failed:
            return head
        failed = translator.ngettext("{count} couldn't be added:", "{count} couldn't be added:", len(self.failed))
        rows = [error_text(error, one_line(url, 200), translator) for url, error in self.failed]
        return fit_rows(f"{head} {failed}", rows, translator)
