"""The settings of all programs, and how they are loaded.

The value of a setting comes from the first of these sources that defines it:

1. arguments
2. the file named by ``CORONET_NAME_FILE`` (available for every setting ``NAME``, intended for secrets)
3. the environment variable ``CORONET_NAME``
4. the TOML file named by ``--config`` or ``CORONET_CONFIG``
5. the set of defaults named by the setting ``preset``
6. the defaults below

:func:`load_with_origins` also returns which source each value comes from. Apart from this module, only
:mod:`service.embedded` reads the environment: it searches ``PATH`` for programs and passes the environment on to them.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from ipaddress import ip_network
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    SecretStr,
    ValidationError,
    model_validator,
)

from service.corona.fleet_policy import DEFAULT_POLICY, FleetObjective, FleetPolicy, Goal, Levels
from service.errors import UserError
from service.net.address_guard import check_allowed_network
from service.users.time_zones import find_time_zones

Preset = Literal["trial", "single", "cluster"]
WhoMayUse = Literal["open", "listed", "invited"]

_Item = TypeVar("_Item")

_MIN_KEY_CHARS = 32
_PRIVATE_NETWORKS = ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7", "fe80::/10")


class SettingsInvalid(UserError, code="settings-invalid"):
    """A setting is missing, unknown, or has an invalid value."""


def _comma_separated(value: object) -> object:
    return [part for part in value.replace(",", " ").split() if part] if isinstance(value, str) else value


CommaSeparated = Annotated[tuple[_Item, ...], BeforeValidator(_comma_separated)]
"""A tuple that can also be given as one text, with commas or spaces between the items."""


def _redis_urls(text: str) -> str:
    urls = [url.strip() for url in text.split(",") if url.strip()]
    if not urls or not all(url.startswith(("redis://", "rediss://", "unix://")) for url in urls):
        raise ValueError("a URL begins with redis://, rediss:// or unix://")
    return text


def _zone(name: str) -> str:
    if find_time_zones(name) != (name,):
        raise ValueError(f"there is no time zone {name!r}; use a name such as Europe/Berlin or UTC")
    return name


def _contacts(uris: tuple[str, ...]) -> tuple[str, ...]:
    for uri in uris:
        if not uri.startswith(("mailto:", "xmpp:", "https://", "http://")):
            raise ValueError(f"{uri!r} is no contact address; begin with mailto:, xmpp: or https://")
    return uris


def _credential_keys(keys: SecretStr) -> SecretStr:
    if any(len(key) < _MIN_KEY_CHARS for key in keys.get_secret_value().split()):
        raise ValueError(f"a key has at least {_MIN_KEY_CHARS} characters; `openssl rand -hex 24` makes one")
    return keys


def _path(path: str) -> str:
    path = path.rstrip("/")
    if path and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", path):
        raise ValueError(f"{path!r} is not a path such as /coronet")
    return path


class Settings(BaseModel):
    """The settings of one process. If a setting has a unit, its name contains the unit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: Preset = "single"
    """A set of defaults: ``trial`` (short intervals, high limits, readable logs: `coronet up`), ``single`` (one
    machine) or ``cluster`` (containers: serves metrics on all interfaces at port 9464)."""
    program: Literal["", "worker", "bot", "console"] = ""
    """The only program that uses these settings, for example in its own container: `coronet doctor` checks only what
    this program needs. Empty (default): the settings are for all programs."""

    redis_url: Annotated[str, AfterValidator(_redis_urls)] = "redis://127.0.0.1:6379/0"
    """Address of Redis: ``redis://``, ``rediss://`` (TLS) or ``unix://``. For a Redis Cluster, the address of any node,
    or several separated by commas, which are tried in order; the other nodes are discovered. Put the password in
    ``redis_password``, because URLs can appear in messages."""
    store_identity_file: str = ""
    """Path of a file with the fleet's id and the highest store counter seen. Programs use it to refuse a Redis that
    lost data or belongs to another fleet, even if this happened while all of them were stopped. All programs of a
    machine share the file; it is created if missing, in a directory that they must be able to write. Empty (default): a
    program trusts the store that it finds at its start and detects only losses while it runs."""
    redis_username: str = ""
    """User name for Redis ACLs. Empty (default): Redis's default user."""
    redis_password: SecretStr = SecretStr("")
    """Password for Redis. Empty (default): no password."""

    xmpp_login: Literal["component", "client"] = "component"
    """How the bot logs in: ``component`` (XEP-0114, on your own XMPP server) or ``client`` (an account on any
    server)."""
    xmpp_jid: str = "feeds.localhost"
    """The bot's address: the component's domain, any name at that domain, or the bare JID of the client account. A name
    at the domain is better than the domain alone, because some clients do not show messages from a bare domain."""
    xmpp_shards: CommaSeparated[str] = ()
    """Addresses of further components, separated by commas, with the same password as ``xmpp_jid``, for more users than
    one connection can serve. A user is served by the address that they wrote to first. Set the same list for all bot
    processes; each takes a free address. Default: none."""
    xmpp_password: SecretStr = SecretStr("")
    """Password of the client account, or shared secret of all components."""
    xmpp_host: str = ""
    """Host of the XMPP server. Empty (default): found from the domain of ``xmpp_jid``."""
    xmpp_port: int = Field(default=0, ge=0, le=65535)
    """Port of the XMPP server. 0 (default): the standard port, 5222 for clients and 5347 for components."""
    xmpp_ca_file: str = ""
    """PEM file with a CA certificate to trust in addition to the system's, for an XMPP server with a private CA and its
    uploads of files. Feeds are not affected. Empty (default): only the system's CAs."""
    upload_url: str = ""
    """URL prefix of files on your own XMPP server (HTTP upload, XEP-0363), if it is not publicly reachable. The bot
    then reads and writes these files itself, at ``xmpp_host``. Empty (default): files are written to the URL that the
    server returns, and read by workers if its address is public."""

    console_bind: str = "127.0.0.1"
    """Address on which the console listens. The default accepts connections from this machine only."""
    console_port: int = Field(default=8080, ge=0, le=65535)
    """Port of the console; 0 takes a free port."""
    console_public_url: str = ""
    """Public base URL of the console. Publishers see it in the User-Agent header, and WebSub hubs push to it. Empty
    (default): no WebSub subscriptions are made."""
    console_base_path: Annotated[str, AfterValidator(_path)] = ""
    """Path under which a reverse proxy serves the console, such as ``/coronet``. The proxy must pass it on unchanged,
    and ``console_public_url`` must end with it. Empty (default): the console is at the root of its host."""
    trusted_proxies: CommaSeparated[IPvAnyNetwork] = ()
    """Addresses or networks of reverse proxies in front of the HTTP servers, separated by commas. Only their
    ``Forwarded`` header, or ``X-Forwarded-For`` with ``X-Forwarded-Proto``, determines a client's address and whether
    it uses TLS. Empty (default): every client behind a proxy has the proxy's address."""
    console_admin_token: SecretStr = SecretStr("")
    """API token with the admin role, for scripts. Empty (default): no such token."""
    console_zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    """Time zone of times in the console (a tz database name, such as ``Europe/Berlin``) for accounts without a time
    zone of their own."""
    chat_websocket_url: str = ""
    """WebSocket URL of an XMPP server (RFC 7395) for the console's Chat page, which lets a browser talk to the bot.
    `coronet up` sets this and the next two settings. Empty (default): the console has no Chat page."""
    chat_jid: str = ""
    """JID of the account that the console's Chat page uses."""
    chat_password: SecretStr = SecretStr("")
    """Password of the account in ``chat_jid``."""
    metrics_bind: str = "127.0.0.1"
    """Address on which a worker or bot serves /livez, /readyz and /metrics. The default is reachable from this machine
    only."""
    metrics_port: int = Field(default=0, ge=0, le=65535)
    """Port on which a worker or bot serves /livez, /readyz and /metrics. 0 (default): a free port, so that several
    processes fit on one machine; the console finds it in Redis."""
    metrics_networks: CommaSeparated[IPvAnyNetwork] = tuple(map(ip_network, _PRIVATE_NETWORKS))
    """Networks, separated by commas, whose clients may read /metrics of any process. Default: loopback and private
    networks. Empty: none, so that ``metrics_token`` is required."""
    metrics_token: SecretStr = SecretStr("")
    """Token that allows a client to read /metrics from any network (``Authorization: Bearer …``). The console sends it
    to workers and bots: set the same token for all processes. Empty (default): no such token."""

    poll_interval_s: float = Field(default=900.0, ge=1.0)
    """Corona's τ in seconds: the time between two polls of a channel by the same node. n nodes that take turns poll it
    n times as often. If a fleet has too few nodes for the polls that a channel needs, a node polls it up to four times
    per τ."""
    goal: Goal = Goal.FAIR
    """What the distribution of polls over channels optimises. ``fair`` (default) minimises the mean detection delay per
    notification, so that rarely updated channels are polled less; ``lite`` that per subscription; ``fair-sqrt`` and
    ``fair-log`` are in between; ``fast`` makes as few polls as reach ``target_delay_s``. This and the next five
    settings apply until an admin changes the policy in the console."""
    levels: Annotated[Levels, BeforeValidator(str)] = Levels.CONTINUOUS
    """Number of workers that take turns to poll a channel. ``continuous``: any number. ``2``, ``4``, ``16``: whole
    polling levels of this base, as in the paper: all workers, a half, a quarter or a sixteenth of them, and so on."""
    demand_factor: float = Field(default=0.45, gt=0)
    """Polls that the fleet makes, as a multiple of the demand. The demand for a channel is one poll per subscriber and
    τ, as if each subscriber had a feed reader, limited by ``max_polls_per_hour`` and
    ``polls_per_hour_for_one_subscriber``. From 1 on, all public channels are polled as often as these limits allow, and
    the goal has no effect."""
    budget_polls_per_minute: float | None = Field(default=None, gt=0)
    """Maximum polls per minute of the whole fleet; when it is scarce, channels with the most benefit come first.
    Default: no maximum."""
    target_delay_s: float = Field(default=60.0, gt=0)
    """Target of the goal ``fast`` in seconds: the mean time between a publication and the poll that detects it, over
    all subscriptions."""
    longest_wait_s: float = Field(default=3_600.0, gt=0)
    """Maximum mean detection delay of any channel in seconds (default: 1 hour, so at least a poll every 2 hours),
    unless rate limits or the poll budget do not allow it."""
    weekly_rhythm: bool = True
    """Polls each channel more often at the times of the week at which it usually publishes, and less often at others.
    The times are learnt from its entries; the number of polls per week stays the same, and all limits hold at any time.
    False: polls are evenly spaced."""
    polls_per_hour_for_one_subscriber: float = Field(default=4.0, gt=0)
    """Maximum polls per hour, by the whole fleet, of a public channel with one subscriber, to be polite to publishers.
    The maximum grows with the square root of the subscribers."""
    max_polls_per_hour: float = Field(default=120.0, gt=0)
    """Maximum polls per hour, by the whole fleet, of a public channel with any number of subscribers."""
    host_requests_per_s: float = Field(default=1.0, gt=0)
    """Maximum requests per second to one public site (registrable domain) by the whole fleet, to be polite to
    publishers. An admin can set another rate for a site."""
    address_requests_per_s: float = Field(default=10.0, gt=0)
    """Maximum requests per second to one network (IPv4 /24 or IPv6 /48) by the whole fleet. It is higher than
    ``host_requests_per_s``, because a network can host many sites."""
    egress_group: str = ""
    """Name of the public IP address from which this node's requests come. Nodes with the same address need the same
    name. Empty (default): the whole fleet shares one address."""
    egress_requests_per_s: float = Field(default=1.0, gt=0)
    """Maximum requests per second to one public site by the nodes of one egress group, in addition to the fleet's
    limit ``host_requests_per_s``."""

    nodes_per_worker: int = Field(default=1, ge=1, le=100)
    """Number of overlay nodes in one worker process. Use more than 1 only for experiments: these nodes share one
    process's CPU and connections."""
    lease_ttl_s: float = Field(default=6.0, ge=1.0)
    """Seconds after its last lease renewal until a node is considered dead and its channels are taken over. A lower
    value detects failures sooner, but a busy or paused process can be expelled."""
    maintenance_interval_s: float = Field(default=10.0, ge=0.5)
    """Seconds between two refreshes of soft state by workers: polling assignments, channel ownership, unfinished
    changes."""

    cluster_secret: SecretStr = SecretStr("")
    """Shared secret by which workers authenticate each other before they exchange cached content and soft state. Anyone
    who knows it can pose as a worker. Empty (default): content is read from Redis, and soft state goes through it."""
    credentials_key: Annotated[SecretStr, AfterValidator(_credential_keys)] = SecretStr("")
    """Secret with which logins of private feeds are encrypted in Redis: a random text of at least 32 characters, the
    same for all programs. Keep a copy: without it, these logins are lost. To replace it, write the new one before it,
    separated by a space, and remove the old one after a week. Empty (default): no feed with a login can be added."""
    content_cache_bytes: int = Field(default=16 * 1024 * 1024, ge=0)
    """Size in bytes of each worker's in-memory cache of channel content, for itself and for other workers (default:
    16 MiB)."""
    near_rtt_s: float = Field(default=0.005, gt=0)
    """Round-trip time in seconds up to which two workers are near each other. While some workers are farther, workers
    tell each other what they have in their caches (as attenuated Bloom filters), mostly those near them."""

    keyspace_capacity: float = Field(default=1000.0, gt=0)
    """Maximum load of one part of the subscription index (a keyspace), in deliveries per second. In addition, each
    1,000 subscriptions count as one delivery per second. A part above 90 % of the maximum is split; parts are merged if
    the result stays below 70 %."""

    allow_private: bool = False
    """Allows feeds at loopback addresses. Only for trials and tests: any user could make a worker send requests to
    services on its own machine."""
    allowed_networks: CommaSeparated[Annotated[IPvAnyNetwork, AfterValidator(check_allowed_network)]] = ()
    """Private networks, separated by commas, from which feeds and pages may be fetched in addition to the public web,
    such as ``192.168.1.0/24``. Any user can then make a worker send requests to these addresses, on the ports allowed
    for publishers, and read what answers. Channels there are never public. Link-local addresses need a network within
    their range; loopback cannot be allowed. Default: none."""
    extra_ports: CommaSeparated[int] = ()
    """Further ports of publishers, separated by commas, besides 80, 443, 8080 and 8443. Default: none."""

    who_may_use: WhoMayUse = "open"
    """Who may use the bot: everyone (``open``), those in ``allowed_users`` (``listed``), or these and anyone with an
    invitation (``invited``; `coronet admin invite` creates one). The console needs the same value as the bots."""
    allowed_users: CommaSeparated[str] = ()
    """Bare JIDs (``alice@example.org``) and domains (``example.org``) that may use the bot, separated by commas."""

    contact_addresses: Annotated[CommaSeparated[str], AfterValidator(_contacts)] = ()
    """Addresses of the operators as URIs (``mailto:abuse@example.org``, ``xmpp:admin@example.org``, ``https://…``),
    separated by commas, for questions and reports of abuse. They are in the bot's service discovery (XEP-0157), in its
    `help`, and on the console's About page. Default: none."""

    messages_per_s_per_user: float = Field(default=1.0, gt=0)
    """Maximum messages per second to one user, after a burst of five; further notifications wait and are combined into
    fewer messages."""
    max_subscriptions_per_user: int = Field(default=200, ge=1)
    """Maximum subscriptions of one user."""
    max_new_urls_per_hour: int = Field(default=20, ge=1)
    """Maximum URLs per user and hour that Coronet must fetch because no channel exists for them yet."""
    max_commands_per_minute: int = Field(default=20, ge=1)
    """Maximum commands per user and minute."""
    max_watches_per_user: int = Field(default=50, ge=1)
    """Maximum saved searches (`watch`) of one user."""
    public_from_subscribers: int = Field(default=3, ge=1)
    """Number of subscribers from which on a channel is public: others can find it, and its entries match their saved
    searches (`watch`). An admin can make a channel public earlier. A channel whose URL may contain a secret is never
    public."""

    pubsub_service: str = ""
    """Address of a publish-subscribe service (XEP-0060), such as ``pubsub.example.org``, on which the bot publishes
    each public channel as an Atom node; the bot must be allowed to create nodes. Empty (default): nothing is
    published."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level of log events that are written."""
    log_json: bool = True
    """Writes log events as JSON, one per line (default), instead of readable text."""

    @model_validator(mode="after")
    def _check_public_url(self) -> Self:
        if self.console_base_path and self.console_public_url:
            path = urlsplit(self.console_public_url).path.rstrip("/")
            if path != self.console_base_path:
                raise ValueError(f"console_public_url must end with console_base_path ({self.console_base_path})")
        return self

    def policy(self) -> FleetPolicy:
        """Return the polling policy (goal, intervals and limits) with which a new fleet starts.

        Admins can later change the goal and its parameters (the policy's field ``objective``). Their changes are kept
        in the store.
        """
        return FleetPolicy(
            poll_interval_s=self.poll_interval_s,
            max_polls_per_hour=self.max_polls_per_hour,
            polls_per_hour_for_one_subscriber=self.polls_per_hour_for_one_subscriber,
            most_polls_per_node=DEFAULT_POLICY.most_polls_per_node,
            site_requests_per_s=self.host_requests_per_s,
            maintenance_interval_s=self.maintenance_interval_s,
            weekly_rhythm=self.weekly_rhythm,
            objective=FleetObjective(
                goal=self.goal,
                demand_factor=self.demand_factor,
                budget_polls_per_minute=self.budget_polls_per_minute,
                delay_s=self.target_delay_s,
                longest_wait_s=self.longest_wait_s,
                levels=self.levels,
            ),
        )


PRESETS: dict[str, dict[str, object]] = {
    "trial": {
        "poll_interval_s": 30.0,
        "polls_per_hour_for_one_subscriber": 12.0,
        "maintenance_interval_s": 5.0,
        "max_new_urls_per_hour": 1000,
        "max_commands_per_minute": 600,
        "log_json": False,
    },
    "single": {},
    "cluster": {"metrics_bind": "0.0.0.0", "metrics_port": 9464},  # noqa: S104 - inside containers
}


def _toml(environ: Mapping[str, str]) -> dict[str, object]:
    path = environ.get("CORONET_CONFIG")
    if not path:
        return {}
    try:
        return _with_secret_files(tomllib.loads(Path(path).read_text(encoding="utf-8")), Path(path).parent)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is not valid TOML: {error}"
        raise SettingsInvalid(
            f"The settings file {path} cannot be read: {why}. Correct the file, --config or CORONET_CONFIG."
        ) from error


def _with_secret_files(values: dict[str, object], folder: Path) -> dict[str, object]:
    """Return a copy of ``values`` in which the paths of secret files are replaced with the contents of these files.

    ``values`` are the settings in a settings file. A setting ``NAME_file`` contains the path of a file. In the
    result, the setting ``NAME`` contains the content of this file instead. A relative path is relative to
    ``folder``. Raises ``OSError`` if a file cannot be read.
    """
    read: dict[str, object] = {}
    for key, value in values.items():
        name = key.removesuffix("_file")
        if key in Settings.model_fields or name not in Settings.model_fields or name == key:
            read[key] = value
        else:
            read[name] = (folder / str(value)).read_text(encoding="utf-8").strip()
    return read


def _environment(environ: Mapping[str, str]) -> dict[str, object]:
    return {
        name: environ[f"CORONET_{name.upper()}"]
        for name in Settings.model_fields
        if f"CORONET_{name.upper()}" in environ
    }


def _files(environ: Mapping[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name in Settings.model_fields:
        path = environ.get(f"CORONET_{name.upper()}_FILE")
        if path:
            try:
                text = Path(path).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise SettingsInvalid(f"CORONET_{name.upper()}_FILE cannot be read: {error}") from error
            if text:  # systemd passes an empty file for a credential that does not exist
                values[name] = text
    return values


def environment(config: Path | None = None) -> dict[str, str]:
    """Return the environment variables of this process, for passing to :func:`load`.

    If ``config`` is not None, it is the path of a TOML file, and ``CORONET_CONFIG`` is set to it in the result.
    """
    return {**os.environ, "CORONET_CONFIG": str(config)} if config is not None else dict(os.environ)


def _layers(environ: Mapping[str, str], arguments: Mapping[str, object]) -> list[tuple[str, Mapping[str, object]]]:
    """Return the sources of settings, lowest priority first, as pairs (name of the source, dict of its settings).

    Raises :class:`SettingsInvalid` if a file cannot be read or parsed, or the preset does not exist.
    """
    sources: list[tuple[str, Mapping[str, object]]] = [
        ("settings file", _toml(environ)),
        ("environment", _environment(environ)),
        ("secret file", _files(environ)),
        ("argument", arguments),
    ]
    preset = "single"
    for _, values in sources:
        preset = str(values.get("preset", preset))
    if preset not in PRESETS:
        raise SettingsInvalid(f"There is no preset {preset!r}; choose one of {', '.join(PRESETS)}.")
    return [(f"preset {preset}", PRESETS[preset]), *sources]


def load(environ: Mapping[str, str] = os.environ, **arguments: object) -> Settings:
    """Load the settings from ``arguments``, the environment, and the files that the environment names.

    A setting in ``arguments`` takes precedence. Raises :class:`SettingsInvalid` if a setting is invalid. The message
    names every invalid setting and its source.
    """
    return load_with_origins(environ, **arguments)[0]


def load_with_origins(environ: Mapping[str, str] = os.environ, **arguments: object) -> tuple[Settings, dict[str, str]]:
    """Return (settings, origins): the settings as :func:`load` returns them, and where their values come from.

    ``origins`` maps each setting's name to the source of its value.
    """
    merged: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    for source, values in _layers(environ, arguments):
        merged |= values
        origins |= dict.fromkeys(values, source)
    try:
        return Settings(**merged), origins
    except ValidationError as error:
        problems = []
        for each in error.errors(include_input=False):
            name = str(each["loc"][0]) if each["loc"] else ""
            why = "there is no such setting" if each["type"] == "extra_forbidden" else each["msg"]
            problems.append(f"{'.'.join(map(str, each['loc']))} ({origins.get(name, 'default')}): {why}")
        raise SettingsInvalid(f"Invalid settings: {'; '.join(problems)}. See docs/operators.md.") from None


def is_tracing_enabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether OpenTelemetry's standard variables in ``environ`` configure a trace exporter."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    names = "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    return any(map(environ.get, names))


def read_notify_socket(environ: Mapping[str, str] = os.environ) -> tuple[str, float]:
    """Return (address of systemd's notification socket, timeout of systemd's watchdog in seconds); see sd_notify(3).

    - The address is "" if systemd did not start this process. An abstract address begins with a zero byte.
    - The timeout is infinite if the unit has no watchdog.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    is_own_watchdog = environ.get("WATCHDOG_PID", "") in {"", str(os.getpid())}
    watchdog_us = environ.get("WATCHDOG_USEC", "")
    return address, int(watchdog_us) / 1e6 if is_own_watchdog and watchdog_us.isdecimal() else inf
