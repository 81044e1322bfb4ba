"""The page for announcements and its API operations. Announcements are messages from admins to all or some people.

An announcement is previewed with the number of its recipients, then sent over some minutes, and can be stopped.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import CHANNEL_CACHE, PRINCIPAL, SETTINGS, STORE
from service.console.auth.permissions import admin_access
from service.console.forms import convert_fields, read_form, redirect_after, redisplay_on_error
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.page_rendering import render
from service.errors import NotFound, UserError
from service.feeds.canonical_urls import canonical_url, channel_id
from service.model import ChannelId, UserId
from service.net.sites_and_networks import site_of
from service.store.delivery.announcements import Announcement, AnnouncementProgress, Audience, RecipientKind

_MAX_TEXT_CHARS: Final = 3_000
_MAX_ADDRESSES: Final = 1_000
_MAX_MINUTES: Final = 1_440
_ID_CHARS: Final = 40
LANGUAGES: Final = {
    "en": "English",
    "de": "German",
    "fr": "French",
    "es": "Spanish",
    "it": "Italian",
    "pt": "Portuguese",
    "nl": "Dutch",
    "pl": "Polish",
}
_TRANSLATED_TEXTS: Final = {code: f"text_{code}" for code in LANGUAGES if code != "en"}
KINDS: Final = {"all": "people and rooms", "people": "people", "rooms": "rooms"}

_Text = Annotated[str, msgspec.Meta(max_length=_MAX_TEXT_CHARS)]

operation = OPERATIONS = Operations()


class AnnouncementDraft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An announcement: its texts, the conditions that recipients must meet, and the minutes over which it is sent.

    The texts are ``text_de``, ``text_fr`` and so on for the languages of the bot, and ``text`` for all other languages.
    ``text`` is also sent if the text in a recipient's language is empty. Each recipient must meet all of these
    conditions; an empty one is met by everybody:

    - ``to``: all people and rooms, only people, or only rooms.
    - ``language``: only recipients with this language (``en``, ``de``, ``fr``, ``es``, ``it``, ``pt``, ``nl``, ``pl``).
    - ``addresses``: only recipients with one of these addresses.
    - ``host``: only subscribers of channels of this site.
    - ``channel``: only subscribers of the channel with this URL or id.
    """

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_TEXT_CHARS)]
    text_de: _Text = ""
    text_fr: _Text = ""
    text_es: _Text = ""
    text_it: _Text = ""
    text_pt: _Text = ""
    text_nl: _Text = ""
    text_pl: _Text = ""
    to: RecipientKind = "all"
    language: Annotated[str, msgspec.Meta(pattern="^(|en|de|fr|es|it|pt|nl|pl)$")] = ""
    addresses: Annotated[tuple[str, ...], msgspec.Meta(max_length=_MAX_ADDRESSES)] = ()
    host: Annotated[str, msgspec.Meta(max_length=253)] = ""
    channel: Annotated[str, msgspec.Meta(max_length=2_000)] = ""
    minutes: Annotated[int, msgspec.Meta(ge=1, le=_MAX_MINUTES)] = 10

    def translations(self) -> dict[str, str]:
        """Map the codes of languages other than English to the texts in these languages."""
        return {code: text for code, name in _TRANSLATED_TEXTS.items() if (text := getattr(self, name))}

    def describe_recipients(self) -> str:
        """Return a description of the recipients, to be shown to admins."""
        parts = [KINDS[self.to]]
        if self.language:
            parts.append(f"with the language {LANGUAGES[self.language]}")
        if self.addresses:
            parts.append(f"among {len(self.addresses)} addresses")
        parts += [f"subscribed to {name}" for name in (self.host, self.channel) if name]
        return ", ".join(parts)


class AnnouncementPreview(msgspec.Struct, frozen=True):
    """A preview of an announcement: who its recipients are, how many, and how many minutes sending takes."""

    audience: str
    recipients: int
    minutes: float


class AnnouncementView(msgspec.Struct, frozen=True):
    """An announcement and its progress.

    - ``audience`` is a description of the recipients, and ``recipients`` is their number.
    - ``by`` is the name of the account that started the announcement.
    - ``state`` is ``running``, ``done`` or ``stopped``.
    - ``queued`` is the number of recipients for whom the announcement has been queued for delivery.
    - ``started_s`` and ``stopped_s`` are Unix times; ``stopped_s`` is null if the announcement was not stopped.
    """

    number: int
    text: str
    audience: str
    by: str
    started_s: float
    state: str
    recipients: int
    queued: int
    stopped_s: float | None


class AnnouncementList(msgspec.Struct, frozen=True):
    """The last hundred announcements, newest first."""

    items: tuple[AnnouncementView, ...]


@operation("GET", "/announcements", admin_access("people"))
async def get_announcements(request: web.Request) -> AnnouncementList:
    """List announcements with their progress."""
    return AnnouncementList(tuple(map(_view, await request.app[STORE].announcements.latest())))


@operation("POST", "/announcements/preview", admin_access("people"), 422)
async def preview_announcement(request: web.Request, body: AnnouncementDraft) -> AnnouncementPreview:
    """Count the recipients of an announcement, without sending it."""
    request[AUDIT_DETAIL] = body.describe_recipients()
    recipients = len(await _recipients(request, body))
    given = Announcement(0, body.text, "", "", 0.0, body.minutes, recipients)
    minutes = recipients / given.per_s / 60 if recipients else 0.0
    return AnnouncementPreview(body.describe_recipients(), recipients, minutes)


@operation("POST", "/announcements", admin_access("people"), 422)
async def announce(request: web.Request, body: AnnouncementDraft) -> AnnouncementView:
    """Send an announcement to all people and rooms, or to some of them."""
    number = await request.app[STORE].announcements.reserve_number()
    return await _start(request, body, number)


@operation("POST", "/announcements/{number}/stop", admin_access("people"), 404)
async def stop_announcement(request: web.Request) -> None:
    """Stop an announcement: no further recipients get it."""
    number = request.match_info["number"]
    request[AUDIT_DETAIL] = number[:10]
    now_s = time.time()
    if not number.isdecimal() or not await request.app[STORE].announcements.stop(int(number[:15]), now_s):
        raise NotFound("No announcement with this number is being sent.")


async def page(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show the form for a new announcement, and the announcements so far.

    ``error`` is the message to show if a change failed.
    """
    form = await read_form(request)
    return render(
        request,
        "announcements.html",
        status,
        announcements=(await get_announcements(request)).items,
        draft={name: form.get(name, "") for name in AnnouncementDraft.__struct_fields__},
        languages=LANGUAGES,
        kinds=KINDS,
        error=error,
    )


@redisplay_on_error(page)
async def preview(request: web.Request) -> web.Response:
    """Preview an announcement and the number of its recipients."""
    form = await read_form(request)
    draft = _parse(form)
    return render(
        request,
        "announcement_preview.html",
        draft=draft,
        preview=await preview_announcement(request, draft),
        fields=form | {"number": str(await request.app[STORE].announcements.reserve_number())},
        languages=LANGUAGES,
    )


@redisplay_on_error(page)
async def send(request: web.Request) -> web.Response:
    """Send a previewed announcement.

    If the form is submitted twice, the announcement is sent only once.
    """
    form = await read_form(request)
    number = form.get("number", "")
    if not number.isdecimal():
        raise UserError("Preview the announcement first.")
    await _start(request, _parse(form), int(number[:15]))
    raise web.HTTPSeeOther("/announcements")


stop = redirect_after(stop_announcement, "/announcements")


async def _start(request: web.Request, draft: AnnouncementDraft, number: int) -> AnnouncementView:
    uids = await _recipients(request, draft)
    if not uids:
        raise UserError("Nobody would get this announcement.")
    request[AUDIT_DETAIL] = f"{number}: {len(uids)} recipients ({draft.describe_recipients()})"
    announcement = Announcement(
        number=number,
        text=draft.text,
        translations=draft.translations(),
        audience=draft.describe_recipients(),
        by=request[PRINCIPAL].name,
        started_s=time.time(),
        minutes=draft.minutes,
        total=len(uids),
    )
    await request.app[STORE].announcements.start(announcement, uids)
    return _view(AnnouncementProgress(announcement, len(uids)))


async def _recipients(request: web.Request, draft: AnnouncementDraft) -> list[UserId]:
    """Return the ids of the people and rooms who are to receive the announcement ``draft``.

    Raises :class:`UserError` if the draft names an unknown channel or host.
    """
    store, settings = request.app[STORE], request.app[SETTINGS]
    addresses = dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards))
    rooms = await asyncio.gather(*(store.rooms.get(address) for address in addresses))
    audience = Audience(
        kind=draft.to,
        language=draft.language,
        jids=frozenset(address.strip().casefold() for address in draft.addresses),
        channels=await _channels(request, draft),
        rooms=frozenset(jid for each in rooms for jid in each),
    )
    return await store.announcements.find_recipients(audience)


async def _channels(request: web.Request, draft: AnnouncementDraft) -> frozenset[ChannelId] | None:
    if not draft.host and not draft.channel:
        return None
    cache, host, chosen = request.app[CHANNEL_CACHE], draft.host.strip().casefold(), draft.channel.strip()
    found: set[ChannelId] = set()
    if chosen:
        found.add(chosen if len(chosen) == _ID_CHARS and "." not in chosen else channel_id(canonical_url(chosen)))
        if await request.app[STORE].channels.get(next(iter(found))) is None:
            raise UserError(f"There is no channel “{chosen}”.")
    if host:
        await cache.refresh()
        of_host = {row.id for row in cache.rows.values() if row.site == site_of(host)}
        found = found & of_host if chosen else of_host
        if not found:
            raise UserError(f"There are no channels of “{host}”.")
    return frozenset(found)


def _view(progress: AnnouncementProgress) -> AnnouncementView:
    each = progress.announcement
    state = "stopped" if each.stopped_s else "running" if progress.remaining else "done"
    return AnnouncementView(
        number=each.number,
        text=each.text,
        audience=each.audience,
        by=each.by,
        started_s=each.started_s,
        state=state,
        recipients=each.total,
        queued=each.stopped_at if each.stopped_s else each.total - progress.remaining,
        stopped_s=each.stopped_s or None,
    )


def _parse(form: Mapping[str, str]) -> AnnouncementDraft:
    """Return the draft that a form's fields describe. Raises :class:`UserError` for an invalid value."""
    values: dict[str, object] = {
        name: form.get(name, "").strip().replace("\r\n", "\n")
        for name in ("text", *_TRANSLATED_TEXTS.values(), "language", "host", "channel")
    }
    values |= {"to": form.get("to", "all"), "addresses": form.get("addresses", "").split()}
    values |= {"minutes": form.get("minutes", "") or "10"}
    problem = f"Enter a text of at most {_MAX_TEXT_CHARS:,} characters, and 1 to {_MAX_MINUTES:,} minutes."
    return convert_fields(values, AnnouncementDraft, problem)
