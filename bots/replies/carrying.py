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
