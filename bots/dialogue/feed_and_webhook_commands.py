"""Dialogues about the ways to read elsewhere: the addresses of Atom feeds, and the webhook."""

from bots.commands.parser import VerbCommand
from bots.dialogue.folders import find_folder
from bots.dialogue.reply import Reply, failure
from bots.dialogue.request_handler import Requests
from bots.dialogue.settings_parser import NEW_WORDS, OFF_WORDS
from bots.dialogue.subscription_commands import find_targets, no_such_subscription
from bots.replies import feed_and_webhook_texts as texts
from service.feeds.canonical_urls import canonical_url
from service.feeds.parsing.html_text import one_line


async def show_feed(requests: Requests, command: VerbCommand) -> Reply:
    """Show the secret address of the feed that the command names, or make all addresses invalid."""
    translator, words = requests.translator, command.words.strip()
    chosen: dict[str, str] = {}
    public_url = ""
    if words.lower() in OFF_WORDS | NEW_WORDS:
        await requests.revoke_feeds()
        if words.lower() in OFF_WORDS:
            return Reply(translator.gettext(texts.FEEDS_ENDED))
        words = ""
    if not requests.settings.console_public_url:
        return failure(translator.gettext(texts.NO_PUBLIC_URL))
    if not command.target.everything:
        found = await find_targets(requests, command.target)
        if not found:
            return no_such_subscription(translator)
        chosen = {"channel": str(found[0].number)}
        public_url = await requests.public_feed_url(found[0].channel.id)
    elif words:
        folder = await find_folder(requests, words)
        if folder is None:
            return failure(translator.gettext(texts.NO_FOLDER, words=one_line(words, 60)))
        chosen = {"folder": folder.name}
    text = f"{await requests.feed_url(chosen)}\n{translator.gettext(texts.FEED)}"
    return Reply(f"{text} {translator.gettext(texts.PUBLIC_FEED, url=public_url)}" if public_url else text)


async def manage_webhook(requests: Requests, command: VerbCommand) -> Reply:
    """Set or end the user's webhook; without words, show its state."""
    translator, words = requests.translator, command.words.strip()
    if requests.room_nick:
        return failure(translator.gettext(texts.NO_WEBHOOK_IN_ROOMS))
    if words.lower() in OFF_WORDS and (await requests.webhook())[0] is not None:
        await requests.set_webhook("")
        return Reply(translator.gettext(texts.WEBHOOK_OFF))
    if words and words.lower() not in OFF_WORDS:
        url = canonical_url(words)
        if not url.startswith("https:") and not requests.settings.allow_private:
            return failure(translator.gettext(texts.NO_HTTPS))
        secret = await requests.set_webhook(url)
        return Reply(translator.gettext(texts.NEW_WEBHOOK, url=url, secret=secret))
    webhook, waiting = await requests.webhook()
    if webhook is None:
        return Reply(translator.gettext(texts.NO_WEBHOOK))
    return Reply(texts.webhook_text(webhook.url, webhook.state.error, waiting, translator))
