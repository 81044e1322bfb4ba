"""``coronet admin``: the API's operations as commands, sent to a running console, and its answers as text.

Parameters in the path and required fields of the body are arguments, all others are options. ``get_keys`` is the
command ``keys``, ``post_key`` ``add-key``, ``put_`` and ``patch_`` are ``set-``, ``delete_`` ``remove-``; other
operations are commands of the same name.
"""

import inspect
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import typer
from aiohttp import hdrs
from rich.console import Console
from rich.table import Table

from service.console.error_responses import Problem
from service.console.openapi import File, Operation
from service.console.routes import OPERATIONS, PREFIX
from service.errors import Fault, OperationalError, Unreachable, UsageError, UserError, from_fault
from service.net.internal_clients import send_request
from service.operations import shards
from service.operations.shards import Shards
from service.settings import Settings, load

_VERBS: Final = {"get_": "", "post_": "add-", "put_": "set-", "patch_": "set-", "delete_": "remove-"}
_ON_PAGES_ONLY: Final = {"put_my_password"}
"""Asks for secrets, which do not belong into a command line: the page Settings does that."""
_JSON: Final = "application/json"
_WITHIN_S: Final = 120.0
"""Longer than any answer takes: an import of a list of feeds may have 45 s."""
_SHOWN_CHARS: Final = 200
_WIDEST_CELL: Final = 60
_A_DATE_S: Final = 1e9
"""Seconds since 1970; lengths of time are shorter."""
_ABOUT: Final = """\
Look into a running Coronet, and step in, through the console's API.

CORONET_CONSOLE_PUBLIC_URL says where that is, CORONET_CONSOLE_ADMIN_TOKEN holds its token or an API key;
--state takes both from a `coronet up`. Each command has --help, and --json for programs.
"""


@dataclass(frozen=True)
class Call:
    """The request that a command line asks for. ``as_json``: show the answer as it is."""

    operation: Operation
    path: str
    query: dict[str, str]
    body: bytes | None
    media_type: str
    as_json: bool


async def run(arguments: Sequence[str], environ: Mapping[str, str] | None) -> str:
    """Return what to print. Raises :class:`UsageError`, typer's errors, and what the console answers."""
    call = parse(arguments)
    if call is None:
        return ""
    settings = load(environ)
    if not settings.console_admin_token:
        raise UserError("Set CORONET_CONSOLE_ADMIN_TOKEN to the console's token, or to an API key of yours.")
    media_type, body = await _ask(settings, call)
    if not body:
        return "{}" if call.as_json else "Done."
    if call.as_json or media_type != _JSON:
        return body.decode()
    if Shards in call.operation.answers.values():
        return shards.as_text(msgspec.json.decode(body, type=Shards))
    return as_text(msgspec.json.decode(body))


def parse(arguments: Sequence[str]) -> Call | None:
    """Return the request that arguments ask for; None after help was printed. Raises typer's errors and UsageError."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=_ABOUT)
    for operation in sorted(OPERATIONS, key=_command):
        if operation.handler.__name__ not in _ON_PAGES_ONLY:
            summary = (operation.handler.__doc__ or "").strip().partition("\n")[0]
            app.command(_command(operation), help=summary, short_help=summary)(_callback(operation))
    found = app(list(arguments) or ["--help"], prog_name="coronet admin", standalone_mode=False)
    return found if isinstance(found, Call) else None


def _command(operation: Operation) -> str:
    name = operation.handler.__name__
    for prefix, verb in _VERBS.items():
        if name.startswith(prefix):
            name = verb + name.removeprefix(prefix)
    return name.replace("_", "-")


def _callback(operation: Operation) -> Callable[..., Call]:
    """Return a function with the signature that typer makes the command's arguments and options of."""
    wanted = [
        _parameter(each.name, str, each.meaning, is_argument=each.place == "path") for each in operation.parameters
    ]
    if isinstance(operation.body, File):
        wanted.append(_parameter("file", str, "What to send; - is standard input.", is_argument=True))
    elif operation.body is not None:
        wanted += [
            _parameter(field.encode_name, list[str] if _is_list(field) else str, is_argument=field.required)
            for field in _fields(operation.body)
        ]
    as_json = typer.Option(False, "--json", help="Print the answer as it is.")
    wanted.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=as_json, annotation=bool))

    def callback(**given: Any) -> Call:
        return _call(operation, given)

    callback.__signature__ = inspect.Signature(wanted)  # type: ignore[attr-defined]  # typer reads it
    return callback


def _parameter(name: str, kind: type, meaning: str | None = None, *, is_argument: bool) -> inspect.Parameter:
    option = f"--{name.replace('_', '-')}"
    default = (
        typer.Argument(..., metavar=name, help=meaning) if is_argument else typer.Option(None, option, help=meaning)
    )
    annotation = kind if is_argument else kind | None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _fields(kind: type[msgspec.Struct]) -> Iterator[msgspec.structs.FieldInfo]:
    """Yield the fields of a body; of a field that is a struct, the fields of that one."""
    for field in msgspec.structs.fields(kind):
        inner = _struct_of(field)
        yield from _fields(inner) if inner is not None else (field,)


def _struct_of(field: msgspec.structs.FieldInfo) -> type[msgspec.Struct] | None:
    kinds = msgspec.inspect.type_info(field.type)
    found = kinds.types if isinstance(kinds, msgspec.inspect.UnionType) else (kinds,)
    return next((kind.cls for kind in found if isinstance(kind, msgspec.inspect.StructType)), None)


def _is_list(field: msgspec.structs.FieldInfo) -> bool:
    return isinstance(msgspec.inspect.type_info(field.type), (msgspec.inspect.VarTupleType, msgspec.inspect.ListType))


def _call(operation: Operation, given: dict[str, Any]) -> Call:
    path, query = operation.path, {}
    for parameter in operation.parameters:
        value = given[parameter.name]
        if parameter.place == "path":
            path = path.replace("{" + parameter.name + "}", quote(value, safe=""))
        elif value is not None:
            query[parameter.name] = value
    body, media_type = None, _JSON
    if isinstance(operation.body, File):
        body, media_type = _file(given["file"]), operation.body.media_type
    elif operation.body is not None:
        body = msgspec.json.encode(_body(operation.body, given))
    return Call(operation, path, query, body, media_type, given["as_json"])


def _body(kind: type[msgspec.Struct], given: dict[str, Any]) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in msgspec.structs.fields(kind):
        inner, value = _struct_of(field), given.get(field.encode_name)
        if inner is not None:
            found[field.encode_name] = _body(inner, given) or None
        elif value is not None:
            try:
                found[field.encode_name] = msgspec.to_builtins(msgspec.convert(value, field.type, strict=False))
            except msgspec.ValidationError as error:
                raise UsageError(f"{field.encode_name}: {error}") from error
    return found


def _file(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error}") from error


async def _ask(settings: Settings, call: Call) -> tuple[str, bytes]:
    """Return the answer's media type and body.

    Raises the error that a problem stands for, :class:`OperationalError` if there is no console.
    """
    url, token = _url(settings), settings.console_admin_token.get_secret_value()
    headers: dict[str, str] = {hdrs.AUTHORIZATION: f"Bearer {token}"}
    if call.body is not None:
        headers[hdrs.CONTENT_TYPE] = call.media_type
    if call.operation.method == hdrs.METH_POST:
        headers["Idempotency-Key"] = secrets.token_hex(16)
    target = f"{url.rstrip('/')}{PREFIX}{call.path}"
    try:
        status, media_type, content = await send_request(
            call.operation.method, target, query=call.query, headers=headers, body=call.body, within_s=_WITHIN_S
        )
    except Unreachable as error:
        raise OperationalError(
            f"No console answers at {url} ({error}): is `coronet console` running there? "
            "CORONET_CONSOLE_PUBLIC_URL says where to ask."
        ) from error
    if status < HTTPStatus.BAD_REQUEST:
        return media_type, content
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except msgspec.MsgspecError:
        shown = content[:_SHOWN_CHARS].decode(errors="replace")
        raise OperationalError(f"What answers at {url} is no console: status {status}, {shown!r}.") from None
    raise from_fault(Fault(problem.code, problem.detail))


def _url(settings: Settings) -> str:
    if settings.console_public_url:
        return settings.console_public_url
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.console_bind, settings.console_bind)  # noqa: S104 - compared
    return f"http://[{host}]:{settings.console_port}" if ":" in host else f"http://{host}:{settings.console_port}"


def as_text(value: object) -> str:
    """Return an answer of the API for people: lists as tables, other values as lines; no text controls the terminal."""
    if not isinstance(value, Mapping):
        return _cell("", value)
    if not isinstance(value.get("items"), list):
        return "\n".join(_lines(value, ""))
    rest = {name: held for name, held in value.items() if name not in {"items", "next"} and held not in ("", None)}
    lines = [*_table(value["items"]), *_lines(rest, "")]
    if value.get("next"):
        lines.append(f"There is more: --cursor {_cell('', value['next'])}")
    return "\n".join(lines)


def _lines(value: Mapping[str, object], indent: str) -> list[str]:
    lines = []
    for name, held in value.items():
        if isinstance(held, Mapping):
            lines += [f"{indent}{name}:", *_lines(held, indent + "  ")]
        elif isinstance(held, list) and held and isinstance(held[0], Mapping):
            lines += [f"{indent}{name}:", *(f"{indent}  {line}" for line in _table(held))]
        else:
            lines.append(f"{indent}{name}: {_cell(name, held)}")
    return lines


def _table(items: Sequence[Any]) -> list[str]:
    rows = [_flat(item) for item in items]
    if not rows:
        return ["Nothing."]
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(*names, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(_cell(name, row.get(name, ""))[:_WIDEST_CELL] for name in names))
    console = Console(width=(_WIDEST_CELL + 2) * len(names), color_system=None, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def _flat(item: object) -> dict[str, object]:
    """Return an item's values by name, those of an inner value as its own; lists only if they are of plain values."""
    if not isinstance(item, Mapping):
        return {"": item}
    found: dict[str, object] = {}
    for name, value in item.items():
        if isinstance(value, Mapping):
            found |= _flat(value)
        elif not isinstance(value, list) or all(not isinstance(each, (list, Mapping)) for each in value):
            found[name] = value
    return found


def _cell(name: str, value: object) -> str:
    if isinstance(value, list):
        found = ", ".join(_cell(name, each) for each in value)
    elif value is None or isinstance(value, bool):
        found = {None: "-", True: "yes", False: "no"}[value]
    elif isinstance(value, float) and name.endswith("_s") and value >= _A_DATE_S:
        found = datetime.fromtimestamp(value, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    else:
        found = f"{value:,.6g}" if isinstance(value, float) else str(value)
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in found)
