"""Dialogues that export and import lists of subscriptions as OPML.

A list that is too long for one message is exported as a file if the XMPP server accepts uploads, and otherwise as
several messages. :mod:`bots.dialogue.opml_import` imports the feeds of a list in the background.
"""

from collections.abc import Sequence

from bots.commands.parser import VerbCommand
from bots.commands.verb_synonyms import VERB_OF
from bots.dialogue.reply import Reply, missing_argument
from bots.dialogue.request_handler import Requests
from bots.dialogue.subscription_limits import refuse_new_url
from bots.replies import subscription_texts as texts
from bots.replies.formatting import MAX_MESSAGE_BYTES
from service.errors import UploadRefused
from service.feeds import opml_writer
from service.feeds.canonical_urls import canonical_url, shown_url
from service.feeds.opml_writer import OpmlDocument
from service.feeds.parsing.html_text import one_line


async def export(requests: Requests, _command: VerbCommand) -> Reply:
    """Return the user's subscriptions as an OPML document, in one message if possible.

    If the document does not fit into a message, it is uploaded as a file, and the reply contains the file's URL.
    If the XMPP server does not accept the file, the subscriptions are divided among several messages. Each of
    these messages is a complete document without other text, so that the user can save it unchanged. If an upload
    was refused, a message with the reason comes first.
    """
    translator, subscribed = requests.translator, await requests.subscriptions()
    feeds = [
        opml_writer.OpmlSubscription(
            shown_url(each.channel.url), each.channel.title[:100], page=each.channel.kind == "page", folder=each.folder
        )
        for each in subscribed
    ]
    first, *further = split_into_documents(feeds, MAX_MESSAGE_BYTES) or [
        translator.gettext("There's nothing to export: you have no subscriptions.")
    ]
    if not further:
        return Reply(first)
    try:
        url = await requests.share("subscriptions.opml", _document(feeds), "text/x-opml")
    except UploadRefused as error:
        text = translator.gettext(
            "Your list comes in {count} messages, each of which can be imported on its own, because the server "
            "didn't accept a file. {detail}",
            count=1 + len(further),
            detail=one_line(str(error), 300),
        )
        return Reply(text, further_texts=(first, *further))
    if url is None:
        return Reply(first, further_texts=tuple(further))
    text = translator.ngettext(
        "Here's your list of {count} subscription (OPML), for other readers or for `import`. The server only keeps "
        "it for a while, so please save it:",
        "Here's your list of {count} subscriptions (OPML), for other readers or for `import`. The server only keeps "
        "it for a while, so please save it:",
        len(subscribed),
    )
    return Reply(text, further_texts=(url,), is_file=True)


async def import_list(requests: Requests, command: VerbCommand) -> Reply:
    """Import the OPML list in ``command.words``, which is either the list's URL or the OPML document itself.

    A URL counts towards the user's hourly limit on new URLs. Instead of a list, the words may be "status" or "stop",
    in any language, to see how far the import is or to stop it. Raises CoronetError if the list cannot be fetched,
    parsed, or queued for import.
    """
    words = command.words.strip()
    if not words:
        return missing_argument("import", requests.translator)
    match VERB_OF.get(words.lower()):
        case "status":
            return Reply(texts.import_progress_text(await requests.import_progress(), requests.translator))
        case "cancel" if await requests.stop_import():
            return Reply(requests.translator.gettext("I've stopped the import. What I had added so far stays."))
        case "cancel":
            return Reply(texts.import_progress_text(None, requests.translator))
    if words.startswith("<") and not words[1:].startswith(("http://", "https://")):
        return await start_import(requests, await requests.read_list_text(words))
    url = canonical_url(words.split(maxsplit=1)[0].strip("<>"))
    return await refuse_new_url(requests) or await start_import(requests, await requests.read_list(url))


async def start_import(requests: Requests, outline: OpmlDocument) -> Reply:
    """Queue the feeds of the list ``outline`` for import.

    Return the reply that tells the user that the import has begun.
    """
    if outline.feeds:
        await requests.import_feeds(outline)
    return Reply(texts.import_started_text(len(outline.feeds), outline.problems, requests.translator))


def split_into_documents(feeds: Sequence[opml_writer.OpmlSubscription], max_bytes: int) -> list[str]:
    """Divide the feeds, in their order, among complete OPML documents of at most ``max_bytes`` each.

    A feed is left out if its URL is too long to fit into a document.
    """
    empty_bytes = len(_document([]).strip())
    parts: list[list[opml_writer.OpmlSubscription]] = [[]]
    size_bytes = empty_bytes
    for feed in feeds:
        grows_bytes = len(_document([feed]).strip()) - empty_bytes
        if empty_bytes + grows_bytes > max_bytes:
            continue
        if size_bytes + grows_bytes > max_bytes:
            parts.append([])
            size_bytes = empty_bytes
        parts[-1].append(feed)
        size_bytes += grows_bytes
    return [_document(part).decode().strip() for part in parts if part]


def _document(feeds: Sequence[opml_writer.OpmlSubscription]) -> bytes:
    return opml_writer.write("Coronet", feeds)
