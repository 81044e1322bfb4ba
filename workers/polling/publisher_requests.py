"""Sends conditional requests for channels' documents to publishers, within the politeness limits."""

from math import inf

from service.errors import BadStatus
from service.feeds.credentials import Credential
from service.feeds.sandbox.protocol import Document
from service.model import Channel, Validators
from service.net.fetcher import Fetcher, FetchResult
from workers.polling.politeness import Politeness
from workers.polling.poll_state import PollState, channel_day

_PARSING_HEADERS = ("content-type", "content-language")


def conditional_validators(state: PollState, now_s: float) -> Validators:
    """Return the ETag, the date and the body's hash for the next request at ``now_s`` (Unix s).

    Once a day, only the hash is returned. The server then sends the whole document, even if its ETag or date is wrong.
    """
    if channel_day(state.channel, now_s) == state.full_day:
        return state.validators
    return Validators(body_sha256=state.validators.body_sha256)


async def fetch_politely(
    fetcher: Fetcher,
    politeness: Politeness,
    state: PollState,
    validators: Validators,
    within_s: float = inf,
    *,
    credential: Credential | None = None,
) -> FetchResult:
    """Fetch a channel's document within ``within_s`` seconds.

    If the channel is protected, ``credential`` replaces its stored credential.
    The caller must already have taken tokens (permissions) from the budgets of the channel, its site and its network.
    The request is charged to the network that responds, and this network is stored in ``state``. If an error response
    requests a pause, the pause is applied. Raises :class:`PublisherError` if the fetch fails, or :class:`UserError` if
    a redirect is not allowed.
    """
    try:
        fetched = await fetcher.fetch(
            state.channel.url,
            validators,
            state.subscribers,
            politeness.acquire_redirect,
            within_s=within_s,
            public_only=must_be_public(state.channel),
            credential=credential,
        )
    except BadStatus as error:
        await politeness.on_refused(state.channel, error)
        raise
    state.address_group = await politeness.charge_network(fetched.address, state.address_group)
    return fetched


def document_of(fetched: FetchResult) -> Document:
    """Return the body of a response as a document for the parser."""
    headers = {name: fetched.headers[name] for name in _PARSING_HEADERS if name in fetched.headers}
    return Document(fetched.body or b"", fetched.url, headers, fetched.partial)


def must_be_public(channel: Channel) -> bool:
    """Return whether a channel may be fetched only from public addresses, not from private or loopback addresses.

    The result is true if the channel already exists, and if its publisher's address was public when the channel was
    created.
    """
    # Otherwise the publisher could redirect to the operator's own networks, and so expose their contents to
    # subscribers.
    return bool(channel.created_s) and not channel.private
