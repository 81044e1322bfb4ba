"""The API's part about people, and what they have not been told."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console import delivery, people
from service.console.access import act, look, rule
from service.console.audited import DETAIL
from service.console.deliveries import Deliveries, deliveries
from service.console.delivery import Letters, Waiting
from service.console.openapi import BODY, CURSOR, LIMIT, Operation, Parameter
from service.console.people import PAGE, PeoplePage
from service.console.site import STORE
from service.console.wire import answer, body, limit, place
from service.store.people import Person

_MOST = 100_000
DAY_S: Final = 86_400


class SetPerson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a person is suspended, and how many subscriptions they may have (null: what the settings say)."""

    suspended: bool
    most_subscriptions: Annotated[int, msgspec.Meta(ge=0, le=_MOST)] | None = None


class Invitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For how many people an invitation is good, and for how many days."""

    uses: Annotated[int, msgspec.Meta(ge=1, le=_MOST)] = 1
    days: Annotated[float, msgspec.Meta(ge=0.01, le=3650)] = 14.0


class Invited(msgspec.Struct, frozen=True):
    """A code, which is shown this once: ``invite CODE`` is what to send to the bot."""

    code: str


async def get_people(request: web.Request) -> web.Response:
    """People by id, a page at a time."""
    part, cursor = request.query.get("q", ""), request.query.get("cursor", "")
    return answer(await people.people(request.app[STORE], part, cursor, limit(request, PAGE)))


async def get_person(request: web.Request) -> web.Response:
    """One person: what they have, and what they have not been told."""
    return answer(await people.person(request.app[STORE], request.match_info["user"]))


async def get_deliveries(request: web.Request) -> web.Response:
    """What became of a person's last messages: when they were queued, sent and received, or why they were not."""
    return answer(await deliveries(request.app[STORE], request.match_info["user"]))


async def put_person(request: web.Request) -> web.Response:
    """Suspend a person or not, and bound their subscriptions or not."""
    wanted = await body(request, SetPerson)
    request[DETAIL] = msgspec.json.encode(wanted).decode()
    store, uid = request.app[STORE], request.match_info["user"]
    bound = wanted.most_subscriptions
    return answer(await people.change(store, uid, suspended=wanted.suspended, most_subscriptions=bound))


async def delete_person(request: web.Request) -> web.Response:
    """Forget a person: end all that they have, and delete what is known of them."""
    await people.forget(request.app[STORE], request.match_info["user"])
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def invite(request: web.Request) -> web.Response:
    """Make an invitation, for a bot with the setting who_may_use=invited: whoever gets the code sends it to the bot."""
    wanted = await body(request, Invitation)
    return answer(Invited(await request.app[STORE].invites.create(wanted.uses, wanted.days * DAY_S)))


async def get_delivery(request: web.Request) -> web.Response:
    """Who waits for messages, longest first, and how many messages were given up."""
    return answer(await delivery.waiting(request.app[STORE]))


async def get_dead_letters(request: web.Request) -> web.Response:
    """Messages that were given up, newest first."""
    return answer(await delivery.letters(request.app[STORE], place(request), limit(request, delivery.PAGE)))


async def requeue_dead_letter(request: web.Request) -> web.Response:
    """Have what a dead letter would have told be told after all."""
    if not await request.app[STORE].dead_letters.requeue(request.match_info["letter"]):
        raise _no_letter()
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def delete_dead_letter(request: web.Request) -> web.Response:
    """Forget a dead letter."""
    if not await request.app[STORE].dead_letters.drop(request.match_info["letter"]):
        raise _no_letter()
    return web.Response(status=HTTPStatus.NO_CONTENT)


def _no_letter() -> web.HTTPNotFound:
    return web.HTTPNotFound(text="There is no such dead letter. It may have been sent again or dropped.")


_PART = Parameter("q", "query", "Only people whose address holds this text.")
_USER = Parameter("user", "path", "A person's id: 16 characters.")
_LETTER = Parameter("letter", "path", "A dead letter's id.")

OPERATIONS: Final[Sequence[Operation]] = (
    Operation(
        "GET",
        "/people",
        look("people"),
        get_people,
        {200: PeoplePage},
        parameters=(_PART, CURSOR, LIMIT),
        problems=(422,),
    ),
    Operation("GET", "/people/{user}", look("people"), get_person, {200: Person}, parameters=(_USER,), problems=(404,)),
    Operation(
        "GET",
        "/people/{user}/deliveries",
        look("people"),
        get_deliveries,
        {200: Deliveries},
        parameters=(_USER,),
        problems=(404,),
    ),
    Operation(
        "PUT",
        "/people/{user}",
        act("people"),
        put_person,
        {200: Person},
        body=SetPerson,
        parameters=(_USER,),
        problems=(404, *BODY),
    ),
    Operation(
        "DELETE", "/people/{user}", rule("people"), delete_person, {204: None}, parameters=(_USER,), problems=(404,)
    ),
    Operation("POST", "/invitations", act("people"), invite, {200: Invited}, body=Invitation, problems=BODY),
    Operation("GET", "/delivery", look("delivery"), get_delivery, {200: Waiting}),
    Operation(
        "GET",
        "/dead-letters",
        look("delivery"),
        get_dead_letters,
        {200: Letters},
        parameters=(CURSOR, LIMIT),
        problems=(422,),
    ),
    Operation(
        "POST",
        "/dead-letters/{letter}/requeue",
        act("delivery"),
        requeue_dead_letter,
        {204: None},
        parameters=(_LETTER,),
        problems=(404,),
    ),
    Operation(
        "DELETE",
        "/dead-letters/{letter}",
        act("delivery"),
        delete_dead_letter,
        {204: None},
        parameters=(_LETTER,),
        problems=(404,),
    ),
)
