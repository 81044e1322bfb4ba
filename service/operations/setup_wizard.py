"""``coronet setup``: asks for the necessary settings, checks each answer, and writes the settings file.

Nothing is written until all questions have been answered. Each secret is written to a file of its own. The settings
file refers to these files and is written last. Each file is replaced atomically.
"""

import asyncio
import json
import secrets
import shutil
import tomllib
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.prompt import Confirm, IntPrompt, Prompt

from service.errors import UserError
from service.operations.doctor.public_url_check import check_public_url
from service.operations.doctor.redis_checks import check_store
from service.operations.doctor.report import CheckResult
from service.operations.doctor.xmpp_login_check import UNTRUSTED_CERTIFICATE, check_xmpp_logins
from service.private_files import ensure_secret_file, write_private
from service.settings import Settings, WhoMayUse, load

Way = Literal["component", "account"]
Server = Literal["prosody", "ejabberd"]

_SECRETS: Final = ("xmpp_password", "redis_password")
_PROXY_LATER: Final = "If the proxy comes later, keep the answer."
_COMPONENT_PORT: Final = 5347
_CLIENT_PORT: Final = 5222

_SNIPPETS: Final[dict[tuple[Way, Server], str]] = {
    ("component", "prosody"): """\
Component "{component}"
  component_secret = "{password}"
  component_conflict_resolve = "kick_old"
""",
    ("component", "ejabberd"): """\
listen: # keep the entries that are there, and add this one
  - port: {port}
    ip: "127.0.0.1"
    module: ejabberd_service
    access: all
    shaper: none
    hosts:
      "{component}":
        password: "{password}"
""",
    ("account", "prosody"): "prosodyctl adduser {jid}\n",
    ("account", "ejabberd"): "ejabberdctl register {user} {domain} PASSWORD\n",
}
_ACCOUNT_STEPS: Final = (
    "Run this on the XMPP server's machine:",
    'The account also needs an archive and an exemption from rate limits: see docs/xmpp.md, "As an account".',
)
_STEPS: Final[dict[tuple[Way, Server], tuple[str, str]]] = {
    ("component", "prosody"): (
        "Add this at the end of /etc/prosody/prosody.cfg.lua:",
        "Then run `systemctl restart prosody`; a reload does not start new components.",
    ),
    ("component", "ejabberd"): ("Add this to /etc/ejabberd/ejabberd.yml:", "Then run `ejabberdctl reload_config`."),
    ("account", "prosody"): _ACCOUNT_STEPS,
    ("account", "ejabberd"): _ACCOUNT_STEPS,
}
"""What to do with each snippet, and what to do afterwards."""


class SetupRefused(UserError, code="setup-refused"):
    """Raised if the answers cannot be used, or if an existing settings file cannot be read or may not be replaced."""


class Answers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answers to the setup questions. The file passed with ``--answers`` is JSON with the same field names.

    - ``domain``: the domain of the XMPP server
    - ``xmpp``: whether the bot logs in as a component or with an account
    - ``server``: the software of the XMPP server
    - ``xmpp_jid``: the bot's address; "" means ``coronet@feeds.DOMAIN`` for a component, ``coronet@DOMAIN`` for an
      account
    - ``xmpp_password``: the component's secret or the account's password; "" means that a new secret is generated for a
      component. An account must have a password.
    - ``xmpp_ca_file``: a CA to trust in addition; "" means none
    - ``public_url``: the console's URL for other machines; "" means that the console can be reached only from this
      machine
    """

    domain: str
    xmpp: Way = "component"
    server: Server = "prosody"
    xmpp_jid: str = ""
    xmpp_host: str = ""
    xmpp_port: int = 0
    xmpp_password: str = ""
    xmpp_ca_file: str = ""
    redis_url: str = "redis://127.0.0.1:6379/0"
    redis_password: str = ""
    who_may_use: WhoMayUse = "listed"
    allowed_users: tuple[str, ...] = ()
    public_url: str = ""

    def completed(self) -> "Answers":
        """Return a copy in which omitted answers are replaced with defaults that depend on the other answers."""
        is_component = self.xmpp == "component"
        return msgspec.structs.replace(
            self,
            xmpp_jid=self.xmpp_jid or (f"coronet@feeds.{self.domain}" if is_component else f"coronet@{self.domain}"),
            xmpp_host=self.xmpp_host or ("127.0.0.1" if is_component else ""),
            xmpp_port=self.xmpp_port or (_COMPONENT_PORT if is_component else 0),
            xmpp_password=self.xmpp_password or (secrets.token_urlsafe(24) if is_component else ""),
            allowed_users=self.allowed_users or ((self.domain,) if self.who_may_use != "open" else ()),
        )


def values_of(answers: Answers) -> dict[str, object]:
    """Return the settings that follow from the answers, as a dict from name to value. Secrets are included.

    ``answers`` must be complete (:meth:`Answers.completed`).
    """
    same = {name: value for name, value in msgspec.structs.asdict(answers).items() if name in Settings.model_fields}
    return same | {
        "xmpp_login": "component" if answers.xmpp == "component" else "client",
        "allowed_users": list(answers.allowed_users),
        "console_public_url": answers.public_url,
        "console_base_path": urlsplit(answers.public_url).path.rstrip("/"),
        "trusted_proxies": ["127.0.0.1"] if answers.public_url else [],
    }


def snippet(answers: Answers) -> str:
    """Return the configuration to add to the XMPP server, or the command to run on the XMPP server's machine.

    ``answers`` must be complete (:meth:`Answers.completed`).
    """
    user, _, component = answers.xmpp_jid.rpartition("@")
    return _SNIPPETS[answers.xmpp, answers.server].format(
        port=answers.xmpp_port,
        component=component,
        domain=component,
        user=user,
        jid=answers.xmpp_jid,
        password=answers.xmpp_password,
    )


def instructions(answers: Answers) -> str:
    """Return the :func:`snippet` together with instructions: what to do with it, and what to do afterwards."""
    before, after = _STEPS[answers.xmpp, answers.server]
    return f"{before}\n\n{snippet(answers)}\n{after}"


def _address_problem(answers: Answers) -> str:
    """Return why the bot cannot have the address ``xmpp_jid``; "" if it can."""
    if answers.xmpp == "account" or answers.xmpp_jid.rpartition("@")[2] != answers.domain:
        return ""
    return (
        f"A component needs a domain of its own, and {answers.domain} is the server's."
        f" Choose an address such as coronet@feeds.{answers.domain}."
    )


async def check_redis(settings: Settings) -> list[CheckResult]:
    """Check that Redis responds, and that its version, append-only file and eviction policy are suitable."""
    return [each for each in await check_store(settings) if each.name.startswith(("Redis", "Store"))]


async def check_proxy(settings: Settings) -> list[CheckResult]:
    """Check that a proxy responds at the console's public URL.

    If none responds, the advice also says that the URL can be kept if the proxy will be set up later.
    """
    return [
        each if each.ok else msgspec.structs.replace(each, advice=f"{each.advice} {_PROXY_LATER}")
        for each in await check_public_url(settings)
    ]


def load_answers(file: Path) -> Answers:
    """Load answers from the JSON file ``file``, and complete them.

    Raises :class:`SetupRefused` if the file cannot be read or the answers are invalid.
    """
    try:
        answers = msgspec.json.decode(file.read_bytes(), type=Answers).completed()
    except (OSError, msgspec.MsgspecError) as error:
        raise SetupRefused(f"The answers in {file} cannot be used: {error}") from error
    problem = _address_problem(answers) if answers.xmpp_password else "Add the account's password as xmpp_password."
    if problem:
        raise SetupRefused(f"The answers in {file} cannot be used: {problem}")
    return answers


def write_settings(config: Path, values: dict[str, object]) -> None:
    """Write ``values`` to the settings file ``config``. Each secret is written to a separate file instead.

    If there is no key for credentials yet, one is generated.
    Settings in an existing ``config`` that are not in ``values`` are kept. An existing ``trusted_proxies`` is kept even
    if it is in ``values``, because the proxy may run on another machine. Raises :class:`SetupRefused` if the existing
    file cannot be read.
    """
    folder = config.with_suffix(".secrets")
    asked = values.keys() - {"trusted_proxies"}
    kept = {
        name: value
        for name, value in _existing(config).items()
        if name not in asked and name.removesuffix("_file") not in asked
    }
    written: dict[str, object] = {}
    for name, value in values.items():
        if name not in _SECRETS:
            written[name] = value
        elif value:
            write_private(folder / name, f"{value}\n")
            written[f"{name}_file"] = f"{folder.name}/{name}"
    if not kept.keys() & {"credentials_key", "credentials_key_file"}:
        ensure_secret_file(folder, "credentials_key")
        written["credentials_key_file"] = f"{folder.name}/credentials_key"
    # Strings, numbers, booleans and lists of them are the same in JSON and TOML.
    given = {name: value for name, value in written.items() if value not in ("", [], 0)} | kept
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in given.items()]
    write_private(config, "\n".join(["# Written by `coronet setup`.", *lines, ""]))


def _existing(config: Path) -> dict[str, object]:
    try:
        return tomllib.loads(config.read_text(encoding="utf-8")) if config.exists() else {}
    except (OSError, ValueError) as error:
        raise SetupRefused(f"The settings in {config}, which are to be kept, cannot be read: {error}") from error


def run(config: Path, console: Console, answers: Path | None, *, overwrite: bool) -> bool:
    """Get the answers to the setup questions, check them, and write the settings file ``config``.

    - If ``answers`` is None, ask the questions on ``console``. Return whether ``config`` was written; the user may stop
      earlier.
    - Otherwise, read the answers from the file ``answers``, and write ``config`` even if checks fail. An existing
      ``config`` is replaced only if ``overwrite`` is True. Return whether all checks succeeded.

    Raises :class:`SetupRefused` if the answers are invalid or an existing file may not be replaced. Raises
    :class:`service.settings.SettingsInvalid` if the value of a setting is invalid.
    """
    if answers is None:
        return _Wizard(config, console).run()
    if config.exists() and not overwrite:
        raise SetupRefused(f"{config} exists. Pass --overwrite to replace it.")
    given = load_answers(answers)
    values = values_of(given)
    settings = load({}, **values)
    results = [
        *asyncio.run(check_redis(settings)),
        *asyncio.run(check_xmpp_logins(settings)),
        *asyncio.run(check_proxy(settings)),
    ]
    _show(console, results)
    write_settings(config, values)
    console.print(f"Wrote {config}.\n\n{instructions(given)}", markup=False)
    return all(each.ok for each in results)


def _show(console: Console, results: Sequence[CheckResult]) -> None:
    for each in results:
        console.print(f"  {'ok ' if each.ok else 'BAD'} {each.name}: {each.details}", markup=False)
        if not each.ok:
            console.print(f"      → {each.advice}", markup=False)


def _installed_server() -> Server:
    """Return the XMPP server that is installed on this machine: "prosody" or "ejabberd".

    If both or neither of them are installed, return "prosody".
    """
    has_prosody, has_ejabberd = (
        shutil.which(name) or shutil.which(name, path="/usr/sbin") for name in ("prosodyctl", "ejabberdctl")
    )
    return "ejabberd" if has_ejabberd and not has_prosody else "prosody"


class _Wizard:
    """Asks the questions on a terminal. The default answer to each question is the current setting."""

    def __init__(self, config: Path, console: Console) -> None:
        self._config = config
        self._console = console
        self._present = load({"CORONET_CONFIG": str(config)} if config.exists() else {})
        self._is_new = not config.exists()

    def run(self) -> bool:
        """Ask the questions, check the answers, and write the settings file; return whether it was written."""
        self._console.print("Five questions. Enter takes the answer in parentheses; Ctrl-C ends without a change.\n")
        answers = self._present_answers()
        domain = self._ask("1. Domain of your XMPP server", answers.domain)
        answers = msgspec.structs.replace(answers, domain=domain)
        # Redis first: the check of the XMPP login reads there whether a bot is connected, and must not disturb it.
        answers = self._ask_and_check(self._ask_redis, check_redis, answers)
        answers = self._ask_and_check(self._ask_xmpp, check_xmpp_logins, answers)
        answers = self._ask_people(answers)
        answers = self._ask_and_check(self._ask_url, check_proxy, answers)
        values = values_of(answers)
        if not self._is_new and not Confirm.ask(f"Replace {escape(str(self._config))}?", console=self._console):
            self._console.print("Nothing was changed.")
            return False
        write_settings(self._config, values)
        self._console.print(
            f"\nWrote {self._config} (mode 0600). Start with: coronet serve --config {self._config}", markup=False
        )
        return True

    def _present_answers(self) -> Answers:
        """Return answers with the domain and the XMPP login of the existing settings file.

        If there is no settings file yet, return default answers.
        """
        present, server = self._present, _installed_server()
        if self._is_new:
            return Answers("example.org", server=server)
        domain = present.xmpp_jid.rpartition("@")[2]
        is_component = present.xmpp_login == "component"
        return Answers(
            (domain.partition(".")[2] or domain) if is_component else domain,
            "component" if is_component else "account",
            server,
            xmpp_jid=present.xmpp_jid,
            xmpp_host=present.xmpp_host,
            xmpp_port=present.xmpp_port,
            xmpp_password=present.xmpp_password.get_secret_value(),
            xmpp_ca_file=present.xmpp_ca_file,
        )

    def _ask_xmpp(self, answers: Answers) -> Answers:
        way = msgspec.convert(self._choose("3. How the bot logs in", ["component", "account"], answers.xmpp), Way)
        if way != answers.xmpp:  # these answers are about the other kind of login
            answers = msgspec.structs.replace(
                answers, xmpp=way, xmpp_jid="", xmpp_host="", xmpp_port=0, xmpp_password=""
            )
        server = msgspec.convert(self._choose("   Server", ["prosody", "ejabberd"], answers.server), Server)
        default = answers.completed()
        answers = self._ask_address(msgspec.structs.replace(answers, server=server, xmpp_jid=default.xmpp_jid))
        answers = msgspec.structs.replace(
            answers,
            xmpp_host=self._ask("   Host of the server", default.xmpp_host or answers.domain),
            xmpp_port=IntPrompt.ask("   Port", console=self._console, default=default.xmpp_port or _CLIENT_PORT),
            xmpp_password=self._ask_login_password(answers),
        ).completed()
        self._console.print(f"\n{instructions(answers)}\n", markup=False)
        self._ask("Press Enter when this is done", "")
        return answers

    def _ask_address(self, answers: Answers) -> Answers:
        default = answers.xmpp_jid
        while True:
            answers = msgspec.structs.replace(answers, xmpp_jid=self._ask("   Address of the bot", default))
            problem = _address_problem(answers)
            if not problem:
                return answers
            self._console.print(f"   {problem}", markup=False)

    def _ask_login_password(self, answers: Answers) -> str:
        if answers.xmpp == "component":
            return self._ask_secret("   Password", answers.xmpp_password, "Enter for a new one")
        hint = "of the account; you can create it below"
        while not (given := self._ask_secret("   Password", answers.xmpp_password, hint)):
            self._console.print(f"   The account {answers.xmpp_jid} needs a password.", markup=False)
        return given

    def _ask_redis(self, answers: Answers) -> Answers:
        present = self._present
        return msgspec.structs.replace(
            answers,
            redis_url=self._ask("2. URL of Redis", present.redis_url),
            redis_password=self._ask_secret(
                "   Its password", present.redis_password.get_secret_value(), "Enter for none"
            ),
        )

    def _ask_people(self, answers: Answers) -> Answers:
        present = self._present
        who = self._choose(
            "4. Who may use the bot", ["open", "listed", "invited"], "listed" if self._is_new else present.who_may_use
        )
        default = " ".join(present.allowed_users) or answers.domain
        users = self._ask("   Addresses and domains", default).split() if who != "open" else []
        return msgspec.structs.replace(answers, who_may_use=msgspec.convert(who, WhoMayUse), allowed_users=tuple(users))

    def _ask_url(self, answers: Answers) -> Answers:
        url = self._ask("5. Public URL of the console, or - for none", self._present.console_public_url or "-")
        return msgspec.structs.replace(answers, public_url="" if url == "-" else url.rstrip("/"))

    def _ask_and_check(
        self,
        ask: Callable[[Answers], Answers],
        check: Callable[[Settings], Coroutine[None, None, list[CheckResult]]],
        answers: Answers,
    ) -> Answers:
        """Ask some of the questions, check the answers, and return the new answers.

        - ``ask`` asks the questions. It gets the present answers, and returns them with the user's changes.
        - ``check`` checks the settings that result from the answers.
        - ``answers`` are the answers so far.

        The results of the check are shown. If it fails, the user can check again, keep the answers, or change them.
        If the XMPP server's certificate is not trusted, the user is first asked for a CA file, and the check is
        repeated with it.
        """
        choice = "change"
        while choice != "keep":
            if choice == "change":
                answers = ask(answers)
            results = asyncio.run(check(load({}, **values_of(answers))))
            _show(self._console, results)
            if all(each.ok for each in results):
                break
            if any(UNTRUSTED_CERTIFICATE in each.details for each in results):
                file = self._ask("   CA file (Enter for none)", "")
                answers = msgspec.structs.replace(
                    answers, xmpp_ca_file=str(Path(file).expanduser().absolute()) if file else ""
                )
                if file:
                    choice = "again"
                    continue
            choices = ["again", "keep", "change"]
            choice = self._choose("   Check again, keep the answer, or change it", choices, "again")
        return answers

    def _ask(self, question: str, default: str) -> str:
        return str(Prompt.ask(question, console=self._console, default=default, show_default=bool(default)))

    def _choose(self, question: str, choices: list[str], default: str) -> str:
        return str(Prompt.ask(question, console=self._console, choices=choices, default=default))

    def _ask_secret(self, question: str, present: str, without: str) -> str:
        hint = "Enter keeps the present one" if present else without
        given = Prompt.ask(f"{question} ({hint})", console=self._console, password=True, default="", show_default=False)
        return str(given) or present
