"""XEP-0050 on the wire: what a person's software orders, and what we answer. Pure."""

from typing import Final, Literal
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

import msgspec

from bots.xmpp.events import AdhocCommandReceived
from bots.xmpp.service_discovery import COMMANDS
from bots.xmpp.stanzas import LONGEST_TOKEN, bare, clean

MOST_VALUES: Final = 300
"""Of one form: what is beyond is not read. A person has at most some hundred subscriptions to choose from."""
LONGEST_VALUES: Final = 262_144
"""Characters of all of them; a list of subscriptions that is pasted in is long."""

_DATA: Final = "jabber:x:data"
Kind = Literal["text-single", "text-multi", "list-single", "list-multi", "boolean"]
Options = tuple[tuple[str, str], ...]
"""What can be chosen: value, label."""

LANG: Final = "{http://www.w3.org/XML/1998/namespace}lang"


class Field(msgspec.Struct, frozen=True):
    """One field of a form; ``choice`` is what of the person's own there is to choose from, "" for ``options``."""

    var: str
    label: str
    kind: Kind = "text-single"
    required: bool = False
    options: Options = ()
    values: tuple[str, ...] = ()
    choice: Literal["", "subscription", "subscription or all", "watch"] = ""


class Form(msgspec.Struct, frozen=True):
    """What to fill in; without fields, there is nothing to."""

    title: str
    instructions: str
    fields: tuple[Field, ...]


def read(iq: Element) -> AdhocCommandReceived | None:
    """Return what an ``<iq type='set'/>`` orders, or None if it is no command."""
    command = iq.find(f"{{{COMMANDS}}}command")
    sender = iq.get("from", "")
    if command is None or not sender:
        return None
    values: dict[str, tuple[str, ...]] = {}
    read, size = 0, 0
    for field in command.iterfind(f"{{{_DATA}}}x/{{{_DATA}}}field"):
        own = [value.text or "" for value in field.iterfind(f"{{{_DATA}}}value")][: MOST_VALUES - read]
        read, size = read + max(1, len(own)), size + sum(map(len, own))
        if read > MOST_VALUES or size > LONGEST_VALUES:
            break
        values[field.get("var", "")[:LONGEST_TOKEN]] = tuple(own)
    return AdhocCommandReceived(
        bare(sender), sender, iq.get("id", ""), command.get("node", "")[:LONGEST_TOKEN],
        command.get("action", "execute"), command.get("sessionid", "")[:LONGEST_TOKEN], values,
        command.get(LANG, "") or iq.get(LANG, ""),
    )  # fmt: skip


def going_on(node: str, session: str, form: Form, note: str = "") -> str:
    """Return the payload of an answer that asks for more; ``note`` says what was wrong."""
    actions = "<actions execute='complete'><complete/></actions>"
    return _command(node, session, "executing", actions + _note(note, "error") + _form(form))


def completed(node: str, session: str, note: str, *, wrong: bool = False) -> str:
    """Return the payload of an answer that says how it went."""
    return _command(node, session, "completed", _note(note, "error" if wrong else "info"))


def canceled(node: str, session: str) -> str:
    """Return the payload of the answer to somebody who changed their mind."""
    return _command(node, session, "canceled", "")


def _command(node: str, session: str, status: str, content: str) -> str:
    stated = f"node={quoteattr(node)} sessionid={quoteattr(session)} status='{status}'"
    return f"<command xmlns='{COMMANDS}' {stated}>{content}</command>"


def _note(text: str, kind: str) -> str:
    return f"<note type='{kind}'>{escape(clean(text))}</note>" if text else ""


def _form(form: Form) -> str:
    told = f"<instructions>{escape(clean(form.instructions))}</instructions>" if form.instructions else ""
    fields = "".join(map(_field, form.fields))
    return f"<x xmlns='{_DATA}' type='form'><title>{escape(clean(form.title))}</title>{told}{fields}</x>"


def _field(field: Field) -> str:
    options = "".join(
        f"<option label={quoteattr(clean(label))}><value>{escape(clean(value))}</value></option>"
        for value, label in field.options
    )
    values = "".join(f"<value>{escape(clean(value))}</value>" for value in field.values)
    required = "<required/>" if field.required else ""
    stated = f"var={quoteattr(field.var)} type='{field.kind}' label={quoteattr(clean(field.label))}"
    return f"<field {stated}>{required}{values}{options}</field>"
