"""What is said about lists of subscriptions, in and out."""

from bots import exchange as say
from bots.failures import sentence
from bots.replies.parts import fitted
from bots.voice import Voice
from service.feeds.text import one_line

_MOST_NAMED = 10


def exported(reply: say.Exported, voice: Voice) -> str:
    """Return the first part of a list: nothing else stands in its message, so that it can be taken as it is."""
    if not reply.documents:
        return voice.say("You have no subscriptions. Send me the address of a site or feed to start.")
    return reply.documents[0]


def refused(reply: say.Exported, voice: Voice) -> str:
    """Say why a long list came in several messages; "" if it did not, or no file was to be had."""
    if reply.refused is None:
        return ""
    return voice.say(
        "Your list is in {count} messages, each of which can be imported alone: the server took no file. {detail}",
        count=len(reply.documents),
        detail=one_line(str(reply.refused), 300),
    )


def exported_as_file(reply: say.ExportedAsFile, voice: Voice) -> str:
    """Announce the file, which is a message of its own: only so do clients show it as one."""
    return voice.many(
        "Your list of {count} subscription (OPML), for other readers or for `import`; the server keeps it for a while:",
        "Your list of {count} subscriptions (OPML), for other readers or for `import`; the server keeps it for a "
        "while:",
        reply.count,
    )


def import_begun(reply: say.ImportBegun, voice: Voice) -> str:
    """Say how many feeds there are, and what is wrong with the list."""
    if not reply.count:
        head = voice.say("I find no feeds in that list.")
    else:
        head = voice.many(
            "I find {count} feed in that list and look at it now. I tell you when I am done.",
            "I find {count} feeds in that list and look at one after the other. I tell you when I am done.",
            reply.count,
        )
    rows = [one_line(problem, 200) for problem in reply.problems[:_MOST_NAMED]]
    return fitted(head, rows, voice)


def imported(reply: say.Imported, voice: Voice) -> str:
    """Say what came of a list."""
    head = voice.many(
        "Your list is done: {count} new subscription.", "Your list is done: {count} new subscriptions.", reply.new
    )
    if reply.known:
        known = voice.many("{count} you had already.", "{count} you had already.", reply.known)
        head = f"{head} {known}"
    if not reply.failed:
        return head
    failed = voice.many("{count} could not be added:", "{count} could not be added:", len(reply.failed))
    rows = [sentence(error, one_line(url, 200), voice) for url, error in reply.failed]
    return fitted(f"{head} {failed}", rows, voice)
