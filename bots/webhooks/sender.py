"""Sender of webhooks: posts the items in the queues of people's webhooks, in order, and repeats failed requests.

The bot process that serves a person sends for this person, one request at a time. An item stays in the queue until the
webhook has accepted it, so it may be sent again after a crash, under the same id. After a failure, all items of the
webhook wait, each time twice as long. Items that wait for more than a day then become dead letters, and the person is
told in chat. A webhook that responds with the status 410, or that has failed for two weeks, is ended.

Mutes and filters apply when an item is sent. Quiet hours, digests and intervals do not apply.
"""

import asyncio
import math
import random
from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec
import structlog

from bots.cluster.partitions import AssignedUsers
from bots.delivery.batch_renderer import load_versions, select_changes
from bots.i18n.translator import get_translator
from bots.replies.feed_and_webhook_texts import WEBHOOK_ENDED, WEBHOOK_FAILING
from bots.webhooks.payload import signed_headers, webhook_payload
from bots.xmpp import stanzas
from bots.xmpp.interface import XmppSender, send_until_confirmed
from bots.xmpp.message_ids import new_message_id
from service.asyncio_tasks import cancel_and_wait
from service.clock import Clock
from service.errors import BadRedirect, BadStatus, CoronetError, RequestsPaused, StoreUnavailable
from service.feeds.canonical_urls import host_of, is_loopback
from service.feeds.parsing.html_text import one_line
from service.model import UserId
from service.net.fetcher import create_fetcher
from service.net.sites_and_networks import site_of
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id as id_of_user
from service.store.coordination.request_budgets import RateLimit
from service.store.delivery.outbox import OutboxItem
from service.store.delivery.webhooks import Webhook, WebhookState
from service.users.change_suppression import suppressed_positions
from service.users.filters import build_subjects
from service.users.preferences import FOR_ALL, NO_PREFERENCES

MAX_PARALLEL: Final = 64
"""Maximum number of people to whose webhooks this process sends at the same time."""
TIMEOUT_S: Final = 10.0
FIRST_RETRY_S, LONGEST_RETRY_S = 5.0, 4 * 3_600.0
GIVE_UP_AFTER_S, END_AFTER_S = 86_400.0, 14 * 86_400.0
_SWEEP_INTERVAL_S: Final = 60.0
_RETRY_S: Final = 0.5
_BURST: Final = 4
_GONE: Final = 410
_MAX_DETAIL_CHARS: Final = 300
_log = structlog.get_logger()


class WebhookSender:
    """Posts to the webhooks of the users of one bot while :meth:`run` is running."""

    def __init__(
        self, settings: Settings, store: Store, xmpp: XmppSender, clock: Clock, assigned_users: AssignedUsers
    ) -> None:
        """Create a sender for ``assigned_users``, who are told through ``xmpp`` if their webhook keeps failing."""
        self._site_requests_per_s = settings.host_requests_per_s
        self._store = store
        self._xmpp = xmpp
        self._clock = clock
        self._assigned_users = assigned_users
        self._client = create_fetcher(settings, total_s=TIMEOUT_S)
        self._slots = asyncio.Semaphore(MAX_PARALLEL)
        self._users: set[UserId] = set()  # who have a webhook
        self._tasks: dict[UserId, asyncio.Task[None]] = {}
        self._woken: set[UserId] = set()
        self._next_sweep_s = -math.inf
        self._is_running = False

    async def run(self) -> None:
        """Send until cancelled. What is not sent then is sent by the next run."""
        async with self._client:
            self._is_running = True
            try:
                await self._listen()
            finally:
                self._is_running = False
                await cancel_and_wait(*tuple(self._tasks.values()))

    def on_partitions_gained(self) -> None:
        """Send soon what waits for the webhooks of users who have been assigned to this process."""
        self._next_sweep_s = -math.inf

    async def set_webhook(self, jid: str, url: str) -> str:
        """Set a user's webhook to the canonical ``url``; return the secret with which requests are signed.

        If ``url`` is "", end the webhook, if there is one. Nothing more is posted to an earlier webhook.
        """
        user_id, secret = id_of_user(jid), ""
        if url:
            secret = await self._store.webhooks.create(user_id, url)
            self._users.add(user_id)
        else:
            await self._store.webhooks.delete(user_id)
        if (task := self._tasks.get(user_id)) is not None:
            await cancel_and_wait(task)
        return secret

    # Scheduling.

    async def _listen(self) -> None:
        """Send whenever items are queued. In addition, look periodically for items that wait."""
        after = ""
        while True:
            try:
                woken, after = await self._store.outbox.wait_for_wakeups(after)
                if self._clock.monotonic_s() >= self._next_sweep_s:
                    self._next_sweep_s = self._clock.monotonic_s() + _SWEEP_INTERVAL_S
                    self._users = await self._store.webhooks.users()
                    assigned = list(filter(self._assigned_users.includes, self._users))
                    lengths = await self._store.webhooks.queue_lengths(assigned)
                    woken = [user_id for user_id, length in zip(assigned, lengths, strict=True) if length]
                self._wake(await self._assigned_users.select([each for each in woken if each in self._users]))
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)

    def _wake(self, user_ids: Iterable[UserId]) -> None:
        for user_id in user_ids if self._is_running else ():
            self._woken.add(user_id)
            if user_id not in self._tasks:
                task = self._tasks[user_id] = asyncio.create_task(self._serve(user_id))
                task.add_done_callback(partial(self._tasks.pop, user_id))

    def _wake_after(self, user_id: UserId, delay_s: float) -> None:
        if delay_s < _SWEEP_INTERVAL_S:  # otherwise a sweep finds it
            asyncio.get_running_loop().call_later(max(0.1, delay_s), self._wake, (user_id,))

    async def _serve(self, user_id: UserId) -> None:
        """Send the items of a user's webhook until none is due."""
        try:
            async with self._slots:
                while user_id in self._woken:
                    self._woken.discard(user_id)
                    while await self._send_next(user_id):
                        pass
        except StoreUnavailable as error:
            _log.info("webhook delayed, store unavailable", user=user_id, error=str(error))
        except Exception:  # noqa: BLE001 - whatever it is, the other people's webhooks go on
            _log.exception("webhook failed", user=user_id)

    # One item.

    async def _send_next(self, user_id: UserId) -> bool:
        """Send the oldest item of a user's webhook; return whether the next one may be sent at once."""
        webhooks = self._store.webhooks
        webhook, items = await webhooks.get(user_id), await webhooks.oldest_items(user_id)
        is_assigned = self._assigned_users.includes(user_id) and self._assigned_users.is_lease_valid()
        if webhook is None or not items or not is_assigned:
            return False
        wait_s = webhook.state.next_s - self._clock.wall_s()
        if wait_s <= 0:
            body = await self._payload(user_id, items[0].item)
            if body is None:
                await webhooks.record(user_id, webhook, webhook.state, items)
                return True
            try:
                wait_s = await self._take_token(webhook.url)
                if wait_s <= 0:
                    now_s = self._clock.wall_s()
                    headers = signed_headers(webhook.secret, f"{user_id}-{items[0].id}", now_s, body)
                    await self._client.post(webhook.url, body, _refuse_redirect, further_headers=headers)
                    await webhooks.record(user_id, webhook, WebhookState(), items)
                    return True
            except StoreUnavailable:
                raise
            except CoronetError as error:
                wait_s = await self._on_failure(user_id, webhook, error)
        self._wake_after(user_id, wait_s)
        return False

    async def _payload(self, user_id: UserId, item: OutboxItem) -> bytes | None:
        """Return the content of the request about an item; None if the user is not sent anything of it."""
        if await self._store.users.suspended_users([user_id]):
            return None
        (preferences,) = await self._store.preferences.of_users([user_id])
        (number,) = await self._store.subscriptions.numbers([(user_id, item.channel)])
        channel = await self._store.channels.get(item.channel)
        versions = await load_versions(self._store.channels, item)
        subjects = [(delta, build_subjects(delta.changes)) for delta in versions.deltas]
        suppressed = suppressed_positions(preferences, number or FOR_ALL, subjects, edits=item.edits)
        if channel is None or suppressed is None:
            return None
        item = msgspec.structs.replace(item, omitted=(*(item.omitted or ()), *suppressed))
        deltas = select_changes(item, versions.deltas)
        if not versions.missing_count and not any(delta.changes or delta.notice for delta in deltas):
            return None
        title = preferences.get(number or FOR_ALL, NO_PREFERENCES).title or channel.title
        channel = msgspec.structs.replace(channel, title=title)
        return webhook_payload(item, channel, number, deltas, versions.missing_count)

    async def _take_token(self, url: str) -> float:
        """Take a token from the budget of requests to the site of ``url``; return 0.0, or the seconds to wait for one.

        The polls of workers take tokens from the same budget. Raises HostBlocked if an admin has blocked the host.
        """
        host = host_of(url)
        await self._store.blocked_hosts.check(host)
        try:
            limit = RateLimit(site_of(host), self._site_requests_per_s, _BURST)
            return 0.0 if is_loopback(host) else await self._store.request_budgets.take_site(limit)
        except RequestsPaused as error:
            return error.paused_s

    async def _on_failure(self, user_id: UserId, webhook: Webhook, error: CoronetError) -> float:
        """Record a failed request, give up old items or the webhook if it is time; return the seconds to wait."""
        now_s, detail = self._clock.wall_s(), one_line(str(error), _MAX_DETAIL_CHARS)
        # If there was nothing to send for long, it is not known that the webhook has failed all the time.
        state = webhook.state if now_s - webhook.state.next_s < GIVE_UP_AFTER_S else WebhookState()
        since_s, is_reported = state.failing_since_s or now_s, state.is_reported
        status, asked_s = (error.status, error.retry_after_s or 0.0) if isinstance(error, BadStatus) else (0, 0.0)
        if status == _GONE or now_s - since_s >= END_AFTER_S:
            await self._tell(user_id, WEBHOOK_ENDED, url=webhook.url, detail=detail)
            await self._store.webhooks.delete(user_id)
            return math.inf
        if now_s - since_s >= GIVE_UP_AFTER_S:
            until_s, reason = now_s - GIVE_UP_AFTER_S, f"webhook failed for a day: {detail}"
            if await self._store.webhooks.move_to_dead_letters(user_id, until_s, reason) and not is_reported:
                await self._tell(user_id, WEBHOOK_FAILING, url=webhook.url, detail=detail)
                is_reported = True
        jitter = random.random()  # noqa: S311 - it only spreads retries
        delay_s = min(FIRST_RETRY_S * 2.0 ** min(state.tries, 20), LONGEST_RETRY_S) * (1 + jitter) / 2
        delay_s = max(delay_s, min(asked_s, GIVE_UP_AFTER_S))
        _log.info("webhook request failed", user=user_id, error=detail, retry_in_s=round(delay_s, 1))
        after = WebhookState(state.tries + 1, since_s, now_s + delay_s, detail, is_reported)
        await self._store.webhooks.record(user_id, webhook, after)
        return delay_s

    async def _tell(self, user_id: UserId, sentence: str, **values: str) -> None:
        (jid,) = await self._store.users.jids([user_id])
        (settings,) = await self._store.users.user_settings([user_id])
        text = get_translator(settings.effective_language).gettext(sentence, **values)
        content = stanzas.body(text) + stanzas.RECEIPT_REQUEST
        message = stanzas.message(self._xmpp.address, jid, new_message_id(user_id), content)
        await send_until_confirmed(self._xmpp, [message])


async def _refuse_redirect(host: str) -> None:
    raise BadRedirect(f"It redirects to {host}, which is not followed.")
