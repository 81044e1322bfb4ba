"""``coronet admin``: a command-line client for the console's API, with one command per operation.

Path parameters and required body fields are arguments, and everything else is an option. A command's name comes from
the id of its operation: the operation ``get_keys`` has the command ``keys``, and ``post_key`` has ``add-key``. The
prefixes ``put_`` and ``patch_`` become ``set-``, and ``delete_`` becomes ``remove-``. Other operations keep their
names. Responses are printed as text or, with ``--json``, unchanged.
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

from service.console.api.operation_registry import OPERATIONS, PREFIX
from service.console.api.operations import File, Operation
from service.console.middleware.error_responses import Problem
from service.errors import Fault, OperationalError, Unreachable, UsageError, UserError, from_fault
from service.net.internal_clients import send_request
from service.operations import shard_administration
from service.operations.shard_administration import Shards
from service.settings import Settings, load

_COMMAND_PREFIXES: Final = {"get_": "", "post_": "add-", "put_": "set-", "patch_": "set-", "delete_": "remove-"}
_PAGES_ONLY: Final = {"put_my_password"}
"""Operations that have no command, because their arguments are secrets, which a command line would reveal. People use
the console's page Settings instead."""
_SECRET_FIELDS: Final = {"credential"}
"""Fields of request bodies that have no option, for the same reason."""
_JSON: Final = "application/json"
_TIMEOUT_S: Final = 120.0
"""Time limit for a response of the console. It is longer than any operation takes."""
_MAX_QUOTED_CHARS: Final = 200
_MAX_CELL_CHARS: Final = 60
_MIN_TIMESTAMP_S: Final = 1e9
"""A number of seconds in a response is taken as a Unix time and printed as a date if it is at least this value. A lower
number is printed as a duration."""
_HELP: Final = """\
Inspect and manage a running Coronet through the console's API.

Set CORONET_CONSOLE_PUBLIC_URL to the console's URL and CORONET_CONSOLE_ADMIN_TOKEN to its admin token or an API key;
--config FILE reads both from a settings file, --state from a `coronet up`. Every command has --help, and
--json for scripts.
"""


@dataclass(frozen=True)
class ApiRequest:
    """A request to the console's API, made from a command line.

    If ``as_json`` is true, the response is printed unchanged; otherwise it is formatted as text.
    """

    operation: Operation
    path: str
    query: dict[str, str]
    body: bytes | None
    media_type: str
    as_json: bool


async def run(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """Send the API request for a command line; return the text to print.

    ``arguments`` are the words of the command line after the program's name. ``environ`` contains the environment
    variables with the settings. Raises :class:`UsageError` or a typer error if the command line is invalid. If the
    request fails, raises the error from the console's response.
    """
    api_request = parse(arguments)
    if api_request is None:
        return ""
    settings = load(environ)
    if not settings.console_admin_token:
        raise UserError(
            "Set CORONET_CONSOLE_ADMIN_TOKEN to the console's admin token, or to one of your API keys."
            " For a running `coronet up`, pass its directory: `coronet admin --state DIR …`."
        )
    media_type, body = await _send(settings, api_request)
    if not body:
        return "{}" if api_request.as_json else "Done."
    if api_request.as_json or media_type != _JSON:
        return body.decode()
    if Shards in api_request.operation.responses.values():
        return shard_administration.as_text(msgspec.json.decode(body, type=Shards))
    return as_text(msgspec.json.decode(body))


def parse(arguments: Sequence[str]) -> ApiRequest | None:
    """Return the API request for the command line ``arguments``; None if help was printed.

    Raises a typer error if the arguments do not match the command, and :class:`UsageError` if the value of a field of
    the request body is invalid.
    """
    app = typer.Typer(
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help=_HELP,
    )
    for operation in sorted(OPERATIONS, key=_command):
        if operation.handler.__name__ not in _PAGES_ONLY:
            summary = (operation.handler.__doc__ or "").strip().partition("\n")[0]
            app.command(_command(operation), help=summary, short_help=summary)(_callback(operation))
    result = app(list(arguments) or ["--help"], prog_name="coronet admin", standalone_mode=False)
    return result if isinstance(result, ApiRequest) else None


def _command(operation: Operation) -> str:
    name = operation.handler.__name__
    for prefix, verb in _COMMAND_PREFIXES.items():
        if name.startswith(prefix):
            name = verb + name.removeprefix(prefix)
    return name.replace("_", "-")


def _callback(operation: Operation) -> Callable[..., ApiRequest]:
    """Return the function that typer calls for the command of ``operation``.

    typer derives the command's arguments and options from the function's signature. The function gets their values and
    returns the API request.
    """
    parameters = [
        _parameter(each.name, str, each.description, is_argument=each.place == "path") for each in operation.parameters
    ]
    if isinstance(operation.body, File):
        parameters.append(_parameter("file", str, "File to send, or - for standard input.", is_argument=True))
    elif operation.body is not None:
        parameters += [
            _parameter(field.encode_name, list[str] if _is_list(field) else str, is_argument=field.required)
            for field in _body_fields(operation.body)
        ]
    as_json = typer.Option(False, "--json", help="Print the response as JSON.")
    parameters.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=as_json, annotation=bool))

    def callback(**values: Any) -> ApiRequest:
        return _make_request(operation, values)

    callback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    return callback


def _parameter(name: str, kind: type, description: str | None = None, *, is_argument: bool) -> inspect.Parameter:
    option = f"--{name.replace('_', '-')}"
    default = (
        typer.Argument(..., metavar=name, help=description)
        if is_argument
        else typer.Option(None, option, help=description)
    )
    annotation = kind if is_argument else kind | None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _body_fields(kind: type[msgspec.Struct]) -> Iterator[msgspec.structs.FieldInfo]:
    """Yield the fields of a request body's type; each nested struct is replaced with its own fields."""
    for field in msgspec.structs.fields(kind):
        if field.encode_name in _SECRET_FIELDS:
            continue
        inner = _struct_of(field)
        yield from _body_fields(inner) if inner is not None else (field,)


def _struct_of(field: msgspec.structs.FieldInfo) -> type[msgspec.Struct] | None:
    kinds = msgspec.inspect.type_info(field.type)
    members = kinds.types if isinstance(kinds, msgspec.inspect.UnionType) else (kinds,)
    return next((kind.cls for kind in members if isinstance(kind, msgspec.inspect.StructType)), None)


def _is_list(field: msgspec.structs.FieldInfo) -> bool:
    return isinstance(msgspec.inspect.type_info(field.type), (msgspec.inspect.VarTupleType, msgspec.inspect.ListType))


def _make_request(operation: Operation, values: dict[str, Any]) -> ApiRequest:
    path, query = operation.path, {}
    for parameter in operation.parameters:
        value = values[parameter.name]
        if parameter.place == "path":
            path = path.replace("{" + parameter.name + "}", quote(value, safe=""))
        elif value is not None:
            query[parameter.name] = value
    body, media_type = None, _JSON
    if isinstance(operation.body, File):
        body, media_type = _read_file(values["file"]), operation.body.media_type
    elif operation.body is not None:
        body = msgspec.json.encode(_make_body(operation.body, values))
    return ApiRequest(operation, path, query, body, media_type, values["as_json"])


def _make_body(kind: type[msgspec.Struct], values: dict[str, Any]) -> dict[str, object]:
    body: dict[str, object] = {}
    for field in msgspec.structs.fields(kind):
        inner, value = _struct_of(field), values.get(field.encode_name)
        if inner is not None:
            body[field.encode_name] = _make_body(inner, values) or None
        elif value is not None:
            try:
                body[field.encode_name] = msgspec.to_builtins(msgspec.convert(value, field.type, strict=False))
            except msgspec.ValidationError as error:
                raise UsageError(f"{field.encode_name}: {error}") from error
    return body


def _read_file(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UserError(f"Cannot read {name}: {error}") from error


async def _send(settings: Settings, api_request: ApiRequest) -> tuple[str, bytes]:
    """Send a request to the console; return the response's media type and body.

    If the response is a problem document, raises the corresponding error. Raises :class:`OperationalError` if no
    console answers.
    """
    url, token = _url(settings), settings.console_admin_token.get_secret_value()
    headers: dict[str, str] = {hdrs.AUTHORIZATION: f"Bearer {token}"}
    if api_request.body is not None:
        headers[hdrs.CONTENT_TYPE] = api_request.media_type
    if api_request.operation.method == hdrs.METH_POST:
        headers["Idempotency-Key"] = secrets.token_hex(16)
    target = f"{url.rstrip('/')}{PREFIX}{api_request.path}"
    try:
        status, media_type, content = await send_request(
            api_request.operation.method,
            target,
            query=api_request.query,
            headers=headers,
            body=api_request.body,
            within_s=_TIMEOUT_S,
        )
    except Unreachable as error:
        raise OperationalError(
            f"No console answers at {url} ({error}). Check that `coronet console` is running, "
            "and that CORONET_CONSOLE_PUBLIC_URL is its URL."
        ) from error
    if status < HTTPStatus.BAD_REQUEST:
        return media_type, content
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except msgspec.MsgspecError:
        quoted = content[:_MAX_QUOTED_CHARS].decode(errors="replace")
        raise OperationalError(f"The server at {url} is not a console: status {status}, {quoted!r}.") from None
    raise from_fault(Fault(problem.code, problem.detail))


def _url(settings: Settings) -> str:
    if settings.console_public_url:
        return settings.console_public_url
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.console_bind, settings.console_bind)  # noqa: S104 - compared
    authority = f"[{host}]:{settings.console_port}" if ":" in host else f"{host}:{settings.console_port}"
    return f"http://{authority}{settings.console_base_path}"


def as_text(value: object) -> str:
    """Format an API response for the terminal: lists as tables, other values as lines, without control characters."""
    if not isinstance(value, Mapping):
        return _cell("", value)
    if not isinstance(value.get("items"), list):
        return "\n".join(_lines(value, ""))
    rest = {name: each for name, each in value.items() if name not in {"items", "next"} and each not in ("", None)}
    lines = [*_table(value["items"]), *_lines(rest, "")]
    if value.get("next"):
        lines.append(f"Next page: --cursor {_cell('', value['next'])}")
    return "\n".join(lines)


def _lines(value: Mapping[str, object], indent: str) -> list[str]:
    lines = []
    for name, each in value.items():
        if isinstance(each, Mapping):
            lines += [f"{indent}{name}:", *_lines(each, indent + "  ")]
        elif isinstance(each, list) and each and isinstance(each[0], Mapping):
            lines += [f"{indent}{name}:", *(f"{indent}  {line}" for line in _table(each))]
        else:
            lines.append(f"{indent}{name}: {_cell(name, each)}")
    return lines


def _table(items: Sequence[Any]) -> list[str]:
    rows = [_flatten(item) for item in items]
    if not rows:
        return ["No items."]
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(*names, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(_cell(name, row.get(name, ""))[:_MAX_CELL_CHARS] for name in names))
    console = Console(width=(_MAX_CELL_CHARS + 2) * len(names), color_system=None, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def _flatten(item: object) -> dict[str, object]:
    """Map the field names of ``item`` to their values, to be printed as lines or as one table row.

    The fields of nested mappings are included; lists that contain lists or mappings are left out. If ``item`` is not a
    mapping, map the name "" to it.
    """
    if not isinstance(item, Mapping):
        return {"": item}
    values: dict[str, object] = {}
    for name, value in item.items():
        if isinstance(value, Mapping):
            values |= _flatten(value)
        elif not isinstance(value, list) or all(not isinstance(each, (list, Mapping)) for each in value):
            values[name] = value
    return values


def _cell(name: str, value: object) -> str:
    if isinstance(value, list):
        text = ", ".join(_cell(name, each) for each in value)
    elif value is None or isinstance(value, bool):
        text = {None: "-", True: "yes", False: "no"}[value]
    elif isinstance(value, float) and name.endswith("_s") and value >= _MIN_TIMESTAMP_S:
        text = datetime.fromtimestamp(value, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    else:
        text = f"{value:,.6g}" if isinstance(value, float) else str(value)
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
