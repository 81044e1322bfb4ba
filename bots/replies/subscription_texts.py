"""Texts about subscriptions: subscribing and unsubscribing, pausing and resuming, lists, status, and OPML imports."""

from collections.abc import Sequence
from typing import Final

from bots.i18n.translator import Translator, gettext_noop
from bots.replies.error_texts import error_text, outcome_text
from bots.replies.formatting import (
    MAX_MESSAGE_BYTES,
    Folder,
    SubscribedChannel,
    Target,
    address,
    entry_lines,
    fit_rows,
    join_lines,
    title,
)
from bots.replies.settings_texts import changed_settings
from service.corona.optimizer.poll_explanation import BindingConstraint, PollExplanation
from service.errors import from_fault
from service.feeds.canonical_urls import SHARED, reader_of
from service.feeds.opml_import import FailedFeed, ImportProgress
from service.feeds.parsing.html_text import one_line
from service.model import Entry
from service.users.preferences import Preferences

NO_SUBSCRIPTIONS: Final = gettext_noop("You have no subscriptions. Send me the address of a site or feed to start.")
_MAX_PROBLEMS = 10
_NOTABLE_SPEED: Final = 1.5
"""A reply mentions that a channel is currently polled more or less often than usual if the current poll rate and the
weekly average differ by at least this factor."""

_REASON_OF_CONSTRAINT: Final = {
    BindingConstraint.NONE: gettext_noop(
        "To go easy on websites, I limit how often I check. The more a channel publishes and the more people follow "
        "it, the more often I check it."
    ),
    BindingConstraint.LONGEST_WAIT: gettext_noop("It is checked often enough that nobody has to wait too long."),
    BindingConstraint.CHANNEL_WAIT: gettext_noop("An admin has set how long new entries may take to reach you."),
    BindingConstraint.CHANNEL_INTERVAL: gettext_noop("An admin has set how often it may be checked."),
    BindingConstraint.FAILURE: gettext_noop("It is checked less often until it can be reached again."),
    BindingConstraint.PAUSE: gettext_noop("The site or an admin has asked me not to check it before then."),
    BindingConstraint.NODES: gettext_noop("To check it more often, more workers are needed."),
    BindingConstraint.HOST_BUDGET: gettext_noop(
        "I don't check it more often, to go easy on its site, which has other channels, too."
    ),
    BindingConstraint.FLEET_BUDGET: gettext_noop(
        "There's more to check than I can manage right now, so I check it less often than usual."
    ),
}
"""Maps each constraint on the polls to the sentence that states it. Constraints whose sentence has placeholders are
absent; :func:`_reason` returns their sentences."""


def subscribed_text(
    subscription: SubscribedChannel,
    latest: Sequence[Entry] | None,
    preferences: Preferences,
    translator: Translator,
    *,
    is_new: bool,
    discovered: bool,
    moved: bool,
) -> str:
    """Return the text that tells the user that they are subscribed to a channel, and shows its latest entries.

    - ``subscription``: the subscription.
    - ``latest``: the latest entries of the channel, newest first; None if the user does not want to see any.
    - ``preferences``: the settings that the command contains.
    - ``translator``: the translator into the user's language.
    - ``is_new``: whether the user was not subscribed before.
    - ``discovered``: whether the command names a page that links to the feed, rather than the feed itself.
    - ``moved``: whether the channel has moved to another URL.
    """
    named, channel = subscription.placeholders, subscription.channel
    if not is_new:
        head = translator.gettext("You're already subscribed to *{title}* (#{number}).", **named)
    elif moved:
        url = one_line(channel.url, 2000)
        head = translator.gettext("It has moved to {url}. Subscribed to *{title}* (#{number}).", url=url, **named)
    elif discovered:
        head = translator.gettext("I found a feed on that page. Subscribed to *{title}* (#{number}).", **named)
    else:
        head = translator.gettext("Subscribed to *{title}* (#{number}).", **named)
    if preferences.when is not None and not preferences.muted:
        head = translator.gettext("{subscribed} I'll let you know when a change meets the condition.", subscribed=head)
    elif channel.kind == "page" and not preferences.muted:
        head = translator.gettext("{subscribed} I'll let you know when it changes.", subscribed=head)
    lines = [head, *changed_settings(preferences, translator)]
    if latest is None:
        return "\n".join(lines)
    if channel.kind == "page":
        lines += [
            translator.gettext("Right now it says: {text}", text=join_lines(each.summary, 200)) for each in latest[:1]
        ]
    elif latest:
        lines.append(translator.ngettext("Latest entry:", "Latest {count} entries:", len(latest)))
        lines += [entry_lines(entry, translator) for entry in latest]
    elif preferences.muted:
        lines.append(translator.gettext("There's nothing in it yet."))
    else:
        lines.append(translator.gettext("There's nothing in it yet; I'll let you know when something appears."))
    return "\n".join(lines)


def login_refused_text(url: str, status: int, translator: Translator) -> str:
    """Return the text that says that a publisher has refused the user's login; ``status`` is the HTTP status."""
    return translator.gettext(
        "“{url}” refused your login ({status}), so I haven't stored it. Please check it, and send the command again.",
        url=url,
        status=str(status),
    )


def unsubscribed_text(ended: Sequence[SubscribedChannel], translator: Translator) -> str:
    """Return the text that tells the user which subscriptions have ended."""
    if len(ended) == 1 and reader_of(ended[0].channel.url) not in ("", SHARED):
        return translator.gettext(
            "Unsubscribed from *{title}* (#{number}), and deleted your login for it.", **ended[0].placeholders
        )
    if len(ended) == 1:
        return translator.gettext(
            "Unsubscribed from *{title}* (#{number}). To undo, send `subscribe {url}`.",
            url=address(ended[0].channel),
            **ended[0].placeholders,
        )
    if len(ended) == 2:  # noqa: PLR2004 - both
        return translator.gettext("I've ended both of your subscriptions. Send me a URL to start again.")
    return translator.ngettext(
        "I've ended your only subscription. Send me a URL to start again.",
        "I've ended all {count} of your subscriptions. Send me a URL to start again.",
        len(ended),
    )


def folder_list(folders: Sequence[Folder], translator: Translator) -> str:
    """Return the text that lists a user's folders with their numbers of subscriptions."""
    if not folders:
        return translator.gettext(
            "You have no folders yet. To put a subscription into one, send e.g. `set #3 folder News`."
        )
    rows = [f"*{folder.name}*: {len(folder.subscriptions)}" for folder in folders]
    tail = translator.gettext("`list {folder}` shows what is in it.", folder=folders[0].name)
    return fit_rows(translator.gettext("Your folders:"), rows, translator, tail)


def folder_text(folder: Folder, total: int, translator: Translator) -> str:
    """Return the text that lists the subscriptions in a folder; the user has ``total`` subscriptions in all."""
    head = translator.gettext(
        "Folder *{folder}* ({found} of {count}):", folder=folder.name, found=len(folder.subscriptions), count=total
    )
    return _rows_with_urls(head, folder.subscriptions, translator)


def subscription_list(matches: Sequence[SubscribedChannel], total: int, needle: str, translator: Translator) -> str:
    """Return the text that lists a user's subscriptions.

    - ``matches``: the subscriptions to list.
    - ``total``: how many subscriptions the user has in all.
    - ``needle``: the words for which the user has searched, which each match contains in its title or URL; "" if all
      subscriptions are listed.

    Subscriptions in a folder come after the others, below its name. If the list is long, the URLs are left out.
    """
    if not total:
        return translator.gettext(NO_SUBSCRIPTIONS)
    wanted = one_line(needle, 40)
    if not matches:
        return translator.ngettext(
            "Your {count} subscription doesn't match “{wanted}”. `list` shows it.",
            "None of your {count} subscriptions matches “{wanted}”. `list` shows them all.",
            total,
            wanted=wanted,
        )
    if needle:
        head = translator.gettext(
            "Subscriptions matching “{wanted}” ({found} of {count}):", wanted=wanted, found=len(matches), count=total
        )
    else:
        head = translator.ngettext("{count} subscription:", "{count} subscriptions:", total)
    return _rows_with_urls(head, sorted(matches, key=lambda each: each.folder.casefold()), translator, by_folder=True)


def _rows_with_urls(
    head: str, subscriptions: Sequence[SubscribedChannel], translator: Translator, *, by_folder: bool = False
) -> str:
    """Return ``head`` and one row for each subscription, with its URL if the list is short enough.

    If ``by_folder`` is true, the name of the folder is written above the first of consecutive subscriptions in it.
    """
    rows, folder = [], ""
    for each in subscriptions:
        is_first, folder = by_folder and each.folder.casefold() != folder.casefold(), each.folder
        rows.append(f"*{folder}*\n{_row(each, translator)}" if is_first else _row(each, translator))
    urls = [one_line(address(subscription.channel), 200) for subscription in subscriptions]
    full = "\n".join([head, *(f"{row}\n    {url}" for row, url in zip(rows, urls, strict=True))])
    if len(full.encode()) <= MAX_MESSAGE_BYTES:
        return full
    return fit_rows(head, rows, translator, translator.gettext("To narrow it down, add a word, e.g. `list news`."))


def _row(subscription: SubscribedChannel, translator: Translator) -> str:
    if subscription.paused:
        return translator.gettext("#{number} {title} (paused)", **subscription.placeholders)
    if subscription.muted:
        return translator.gettext("#{number} {title} (muted)", **subscription.placeholders)
    return f"#{subscription.number} {title(subscription.channel)}"


def latest_entries(subscription: SubscribedChannel, entries: Sequence[Entry], translator: Translator) -> str:
    """Return a text that shows the latest entries of a channel, newest first."""
    head = f"*{title(subscription.channel)}* (#{subscription.number})"
    is_page = subscription.channel.kind == "page"
    if not entries and is_page:
        return "\n".join([head, translator.gettext("I haven't read it yet. Please try again in a few minutes.")])
    if not entries:
        return "\n".join([head, translator.gettext("There's nothing in it yet.")])
    rows = [join_lines(entry.summary, 300) if is_page else entry_lines(entry, translator) for entry in entries]
    return fit_rows(head, rows, translator)


def poll_explanation_text(
    subscription: SubscribedChannel,
    explanation: PollExplanation,
    translator: Translator,
    *,
    now_s: float,
    node_uri: str,
    failing_since_s: float | None,
) -> str:
    """Return the text that tells the user how often a channel is polled, and why.

    ``now_s`` is the current Unix time. ``node_uri`` is the URI of the channel's pubsub node, or "" if it has none.
    ``failing_since_s`` is the Unix time since which all polls have failed, or None if the last poll succeeded.
    """
    frequency = translator.format_frequency(explanation.gap_s)
    if explanation.ring_nodes == 1:
        lines = [
            translator.gettext(
                "*{title}* (#{number}) is checked {frequency}, by one worker.",
                frequency=frequency, **subscription.placeholders,
            )
        ]  # fmt: skip
    else:
        lines = [
            translator.ngettext(
                "*{title}* (#{number}) is checked {frequency}, by one of {workers} workers.",
                "*{title}* (#{number}) is checked {frequency}, by {count} of {workers} workers taking turns.",
                explanation.nodes,
                frequency=frequency, workers=explanation.ring_nodes, **subscription.placeholders,
            )
        ]  # fmt: skip
    lines.append(_next_check(explanation, translator, now_s))
    if failing_since_s is None:
        lines.append(_reason(explanation, translator))
    else:
        failure = translator.gettext(
            "I haven't been able to read *{title}* (#{number}) for {age}, so I check it less and less often until I "
            "can.",
            age=translator.format_duration(now_s - failing_since_s),
            **subscription.placeholders,
        )
        lines.insert(0, failure)
    if explanation.present_speed >= _NOTABLE_SPEED:
        lines.append(
            translator.gettext(
                "I check it more often around this time, because that's when something new usually appears."
            )
        )
    elif explanation.present_speed <= 1 / _NOTABLE_SPEED:
        lines.append(
            translator.gettext("I check it less often around this time, because something new rarely appears then.")
        )
    if subscription.channel.version > 1:  # otherwise, nothing new has been seen yet
        lines.append(
            translator.gettext(
                "As far as I can tell, it has something new about {frequency}.",
                frequency=translator.format_frequency(explanation.update_interval_s),
            )
        )
    if node_uri:
        lines.append(translator.gettext("You can also follow it with other XMPP apps (pubsub): {uri}", uri=node_uri))
    return "\n".join(lines)


def _next_check(explanation: PollExplanation, translator: Translator, now_s: float) -> str:
    """Return a text that says how soon new entries usually reach the user, and when the next poll is due.

    While polls fail or are paused, the first part is left out, because new entries then take longer than usual.
    """
    next_s = explanation.next_poll_s() - now_s
    is_delayed = explanation.bound in (BindingConstraint.FAILURE, BindingConstraint.PAUSE)
    wait, time = translator.format_duration(explanation.wait_s), translator.format_duration(next_s)
    match is_delayed, next_s < 1:
        case True, True:
            return translator.gettext("The next check is due now.")
        case True, _:
            return translator.gettext("The next check is in {time}.", time=time)
        case _, True:
            return translator.gettext(
                "New entries usually reach you after about {wait}. The next check is due now.", wait=wait
            )
        case _:
            return translator.gettext(
                "New entries usually reach you after about {wait}. The next check is in {time}.", wait=wait, time=time
            )


def _reason(explanation: PollExplanation, translator: Translator) -> str:
    """Return a sentence that says why the channel is not polled more often."""
    match explanation.bound:
        case BindingConstraint.CHANNEL_BUDGET:
            return translator.ngettext(
                "To go easy on its publisher, I don't check a channel with {count} subscriber more often.",
                "To go easy on its publisher, I don't check a channel with {count} subscribers more often.",
                explanation.subscribers,
            )
        case BindingConstraint.PUBLISHER:
            return translator.gettext(
                "Its publisher asks for one check {frequency} at most.",
                frequency=translator.format_frequency(explanation.publisher_interval_s),
            )
        case bound:
            return translator.gettext(_REASON_OF_CONSTRAINT[bound])


def status_text(
    count: int,
    workers: int,
    failing: Sequence[tuple[SubscribedChannel, str, float]],
    now_s: float,
    translator: Translator,
) -> str:
    """Return the text that says which of the user's subscriptions cannot be polled.

    - ``count``: how many subscriptions the user has.
    - ``workers``: how many workers are running.
    - ``failing``: the subscriptions whose polls fail. Each item consists of the subscription, the outcome of the last
      poll, and the Unix time since which all polls have failed.
    - ``now_s``: the current Unix time.
    """
    if not workers:
        return translator.gettext(
            "No worker is running right now, so nothing is being checked. I'll catch up as soon as one is back."
        )
    if not failing:
        return translator.ngettext(
            "Your subscription is working.", "Your {count} subscriptions are all working.", count
        )
    rows = [
        translator.gettext(
            "#{number} {title}: {problem} (for {age})",
            problem=outcome_text(code, translator),
            age=translator.format_duration(now_s - since_s),
            **subscription.placeholders,
        )
        for subscription, code, since_s in failing
    ]
    if count == 1:
        head = translator.gettext("Your subscription has a problem; I'll keep trying:")
    else:
        head = translator.ngettext(
            "{count} of your {total} subscriptions has a problem; I'll keep trying:",
            "{count} of your {total} subscriptions have problems; I'll keep trying:",
            len(rows),
            total=count,
        )
    return fit_rows(head, rows, translator)


def import_started_text(count: int, problems: Sequence[str], translator: Translator) -> str:
    """Return the text that tells the user that the import of a list with ``count`` feeds has begun.

    If ``count`` is 0, the text says that the list contains no feeds. ``problems`` describe errors in the list.
    """
    if count:
        head = translator.ngettext(
            "I found {count} feed in that list and am checking it now. I'll let you know when I'm done.",
            "I found {count} feeds in that list and am checking them one by one. I'll let you know when I'm done.",
            count,
        )
    else:
        head = translator.gettext("I found no feeds in that list.")
    return fit_rows(head, [one_line(problem, 200) for problem in problems[:_MAX_PROBLEMS]], translator)


def import_progress_text(progress: ImportProgress | None, translator: Translator) -> str:
    """Return the text that says how far the user's import is; ``progress`` is None if there is none."""
    if progress is None:
        return translator.gettext("No list is being imported right now.")
    return translator.gettext(
        "Importing your list: {done} of {total} feeds done (new: {new}, already subscribed: {existing}, failed: "
        "{failed}).",
        done=progress.done,
        total=progress.total,
        new=progress.new,
        existing=progress.existing,
        failed=progress.failed,
    )


def import_result_text(
    new: int, existing: int, failed: Sequence[FailedFeed], translator: Translator, *, has_file: bool
) -> str:
    """Return the text that tells the user how an import ended.

    ``new`` is how many subscriptions were created, and ``existing`` how many of the listed feeds the user was already
    subscribed to. The feeds in ``failed`` are listed, unless ``has_file`` states that a file with them follows.
    """
    head = translator.ngettext(
        "Your list is imported: {count} new subscription.", "Your list is imported: {count} new subscriptions.", new
    )
    if existing:
        had = translator.ngettext(
            "You were already subscribed to {count}.", "You were already subscribed to {count}.", existing
        )
        head = f"{head} {had}"
    if not failed:
        return head
    count = translator.ngettext("{count} couldn't be added:", "{count} couldn't be added:", len(failed))
    rows = [] if has_file else [import_failure_text(each, translator) for each in failed]
    return fit_rows(f"{head} {count}", rows, translator)


def import_failure_text(failed: FailedFeed, translator: Translator) -> str:
    """Return the text that says why a feed of a list could not be added."""
    if not failed.url:
        return failed.fault.detail
    return error_text(from_fault(failed.fault), one_line(failed.url, 200), translator)


def paused_text(target: Target, translator: Translator, *, is_new: bool) -> str:
    """Return the text that says that a subscription, a folder, or everything if ``target`` is None, is paused.

    ``is_new`` states whether anything was still active before the command.
    """
    if target is None and not is_new:
        return translator.gettext("Everything is already paused. Send `resume` when you're ready.")
    if target is None:
        return translator.gettext(
            "Everything is paused, including your saved searches. Send `resume` when you're ready; I'll start with "
            "a short recap of your subscriptions."
        )
    if isinstance(target, Folder):
        return translator.gettext(
            "*{folder}* ({count}) is paused. `resume {folder}` starts it again, with a short recap of what you missed.",
            folder=target.name,
            count=len(target.subscriptions),
        )
    if not is_new:
        return translator.gettext(
            "*{title}* is already paused. `resume #{number}` starts it again.", **target.placeholders
        )
    return translator.gettext(
        "*{title}* is paused. `resume #{number}` starts it again, with a short recap of what you missed.",
        **target.placeholders,
    )


def resumed_text(
    target: Target,
    missed_updates: int,
    missed_matches: int,
    translator: Translator,
    *,
    is_resumed: bool,
) -> str:
    """Return the text that says that a subscription, a folder, or everything if ``target`` is None, is active again.

    ``missed_updates`` is how many updates there were during the pause; a recap of them is sent after this text.
    ``missed_matches`` is how many entries matched saved searches during the pause; these are not sent. ``is_resumed``
    states whether anything was paused before the command.
    """
    if target is None:
        if not is_resumed:
            return translator.gettext("Nothing is paused.")
        head = translator.gettext("Everything is active again.")
    elif isinstance(target, Folder):
        if not is_resumed:
            return translator.gettext("Nothing in *{folder}* is paused.", folder=target.name)
        head = translator.gettext("Everything in *{folder}* is active again.", folder=target.name)
    elif is_resumed:
        head = translator.gettext("*{title}* is active again.", title=title(target.channel))
    else:
        return translator.gettext("*{title}* isn't paused.", title=title(target.channel))
    if missed_updates:
        recap = translator.ngettext(
            "You missed {count} update; here it comes.",
            "You missed {count} updates; a short recap follows.",
            missed_updates,
        )
    else:
        recap = translator.gettext("You haven't missed anything.")
    if not missed_matches:
        return f"{head} {recap}"
    matches = translator.ngettext(
        "In the meantime, your saved searches matched {count} entry. I won't send it now, but you can find it: send "
        "`find type:entry` with the same search.",
        "In the meantime, your saved searches matched {count} entries. I won't send them now, but you can find "
        "them: send `find type:entry` with the same search.",
        missed_matches,
    )
    return f"{head} {recap}\n{matches}"
