"""Ad-hoc commands (XEP-0050) as XML: parses the requests from clients, and writes the responses."""

from typing import Final, Literal
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

import msgspec

from bots.xmpp.events import AdhocCommandReceived
from bots.xmpp.service_discovery import NS_COMMANDS
from bots.xmpp.stanzas import MAX_TOKEN_CHARS, bare_jid
from service.feeds.parsing.html_text import remove_invalid_chars

MAX_FORM_VALUES: Final = 300
"""Maximum number of values accepted in one submitted form. Even a user who selects all subscriptions sends only a few
hundred."""
MAX_FORM_CHARS: Final = 262_144
"""Maximum total length of the values of a submitted form. It is large, because a value can be a pasted OPML list."""
XML_LANG: Final = "{http://www.w3.org/XML/1998/namespace}lang"

_NS_DATA: Final = "jabber:x:data"
FieldKind = Literal["text-single", "text-multi", "text-private", "list-single", "list-multi", "boolean"]
Options = tuple[tuple[str, str], ...]
"""The options of a list field, as pairs (value, label)."""


class Field(msgspec.Struct, frozen=True):
    """One field of a form (XEP-0004 §3.2).

    A list field offers ``options``, which are the same for all users. If ``choice`` is not "", the field offers the
    user's own subscriptions or saved searches instead.
    """

    var: str
    label: str
    kind: FieldKind = "text-single"
    required: bool = False
    options: Options = ()
    values: tuple[str, ...] = ()
    choice: Literal["", "subscription", "subscription or all", "folder", "watch"] = ""


class Form(msgspec.Struct, frozen=True):
    """A form for the user to fill in. If the form has no fields, the user only needs to confirm it."""

    title: str
    instructions: str
    fields: tuple[Field, ...]


def parse_command(iq: Element) -> AdhocCommandReceived | None:
    """Return the request in an ``<iq type='set'/>``, or None if it contains no ad-hoc command.

    Form values beyond ``MAX_FORM_VALUES`` or ``MAX_FORM_CHARS`` are dropped.
    """
    command = iq.find(f"{{{NS_COMMANDS}}}command")
    sender = iq.get("from", "")
    if command is None or not sender:
        return None
    values: dict[str, tuple[str, ...]] = {}
    count, size = 0, 0
    for field in command.iterfind(f"{{{_NS_DATA}}}x/{{{_NS_DATA}}}field"):
        texts = [value.text or "" for value in field.iterfind(f"{{{_NS_DATA}}}value")][: MAX_FORM_VALUES - count]
        count, size = count + max(1, len(texts)), size + sum(map(len, texts))
        if count > MAX_FORM_VALUES or size > MAX_FORM_CHARS:
            break
        values[field.get("var", "")[:MAX_TOKEN_CHARS]] = tuple(texts)
    return AdhocCommandReceived(
        bare_jid(sender), sender, iq.get("id", ""), command.get("node", "")[:MAX_TOKEN_CHARS],
        command.get("action", "execute"), command.get("sessionid", "")[:MAX_TOKEN_CHARS], values,
        command.get(XML_LANG, "") or iq.get(XML_LANG, ""),
    )  # fmt: skip


def response(
    node: str,
    session: str,
    status: Literal["executing", "completed", "canceled"],
    *,
    form: Form | None = None,
    note: str = "",
    is_failed: bool = False,
) -> str:
    """Return the payload of the response to a request: either the next form, or the end of the command.

    ``node`` is the name of the command, and ``session`` the id of its session. ``status`` is "executing" if ``form`` is
    the next form; "completed" and "canceled" end the command. ``note`` is the result of the command, or an error
    message if ``is_failed`` is true.
    """
    content = "<actions execute='complete'><complete/></actions>" if form is not None else ""
    if note:
        content += f"<note type='{'error' if is_failed else 'info'}'>{_text(note)}</note>"
    if form is not None:
        content += _form(form)
    attributes = f"node={quoteattr(node)} sessionid={quoteattr(session)} status='{status}'"
    return f"<command xmlns='{NS_COMMANDS}' {attributes}>{content}</command>"


def _form(form: Form) -> str:
    instructions = f"<instructions>{_text(form.instructions)}</instructions>" if form.instructions else ""
    fields = "".join(map(_field, form.fields))
    return f"<x xmlns='{_NS_DATA}' type='form'><title>{_text(form.title)}</title>{instructions}{fields}</x>"


def _field(field: Field) -> str:
    options = "".join(
        f"<option label={_attribute(label)}><value>{_text(value)}</value></option>" for value, label in field.options
    )
    values = "".join(f"<value>{_text(value)}</value>" for value in field.values)
    required = "<required/>" if field.required else ""
    attributes = f"var={quoteattr(field.var)} type='{field.kind}' label={_attribute(field.label)}"
    return f"<field {attributes}>{required}{values}{options}</field>"


def _text(text: str) -> str:
    return escape(remove_invalid_chars(text))


def _attribute(text: str) -> str:
    return quoteattr(remove_invalid_chars(text))
