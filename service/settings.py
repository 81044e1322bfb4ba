"""One typed, documented settings value; the only reader of the environment.

Layers, strongest first: arguments, ``CORONET_NAME_FILE`` (the value is the file's content; every
field has it, meant for secrets), ``CORONET_NAME``, the TOML file named by ``CORONET_CONFIG``, the
preset, the defaults below. :func:`origins` tells which layer each value came from.
"""

import os
import tomllib
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    SecretStr,
    ValidationError,
)

from service.corona.fleet_policy import FleetObjective, FleetPolicy, Goal
from service.errors import UserError
from service.users.quiet_hours import zone_named

Preset = Literal["trial", "single", "cluster"]
WhoMayUse = Literal["open", "listed", "invited"]


_PRIVATE_NETWORKS = ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7", "fe80::/10")


class SettingsInvalid(UserError, code="settings-invalid"):
    """A setting is missing, unknown, or has an impossible value."""


def _comma_separated(value: object) -> object:
    return [part for part in value.replace(",", " ").split() if part] if isinstance(value, str) else value


def _zone(name: str) -> str:
    if zone_named(name) != (name,):
        raise ValueError(f"there is no time zone {name!r}; name it like Europe/Berlin, or UTC")
    return name


class Settings(BaseModel):
    """Everything that can be set. Units are in the names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: Preset = "single"
    program: Literal["", "worker", "bot", "console"] = ""
    """The one program that these settings are for, as in a container of its own: `coronet doctor` examines only what it
    needs. Empty: they are for all of them."""

    redis_url: str = "redis://127.0.0.1:6379/0"
    """``redis://``, ``rediss://`` or ``unix://``; a password belongs in ``redis_password``. Of a Redis Cluster any
    node, or several with commas between them, which are tried in turn; the others are found by themselves."""
    store_identity_file: str = ""
    """A file in which programs keep the fleet's id and how far they have seen the store's counter grow: by it they
    refuse a Redis that lost data, or has another fleet's, even if that happened while all of them were stopped. The
    programs of one machine share it, and must be able to write its folder. It is made if it is missing. Without the
    setting, a program trusts the store that it finds when it starts, and notices only what happens while it runs."""
    redis_username: str = ""
    redis_password: SecretStr = SecretStr("")

    xmpp_login: Literal["component", "client"] = "component"
    """``component`` (XEP-0114, for our own server) or ``client`` (an account on any server)."""
    xmpp_jid: str = "feeds.localhost"
    """Whom people write to: any name at the component's domain, or the domain alone, or the client account's bare JID.
    A name is better: some clients do not show what comes from a bare domain."""
    xmpp_shards: Annotated[tuple[str, ...], BeforeValidator(_comma_separated)] = ()
    """More components like ``xmpp_jid``, with the same password, for more people than one connection can serve: each
    serves those who wrote to it first. Every bot process is told all of them, and takes what is free."""
    xmpp_password: SecretStr = SecretStr("")
    xmpp_host: str = ""
    """Where to connect; empty means what the JID's domain says."""
    xmpp_port: int = Field(default=0, ge=0, le=65535)
    """0 means the usual one (5222 for clients, 5347 for components)."""
    xmpp_ca_file: str = ""
    """A CA to trust besides the system's: for a server with a private certificate."""
    upload_url: str = ""
    """What the URLs of files on our own XMPP server (XEP-0363) begin with, if that is at no public address: the bot
    then reads and writes them itself, at ``xmpp_host``. Files elsewhere are written where the server says, and read by
    workers, if it is a public address."""

    console_bind: str = "127.0.0.1"
    console_port: int = Field(default=8080, ge=0, le=65535)
    console_public_url: str = ""
    """How others reach the console; named to publishers. Hubs push news there (WebSub): without it, none is asked."""
    trusted_proxies: Annotated[tuple[IPvAnyNetwork, ...], BeforeValidator(_comma_separated)] = ()
    """Addresses and networks of reverse proxies in front of our HTTP servers, with commas between them. Only they are
    believed about who a client is and whether it uses TLS (``Forwarded``, or ``X-Forwarded-For`` with
    ``X-Forwarded-Proto``). Without this, all who come through a proxy have the proxy's address."""
    console_admin_token: SecretStr = SecretStr("")
    """An API token with the admin role, for scripts; empty means none."""
    console_zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    """By whose clocks the console shows times, as a name of the tz database (``Europe/Berlin``), to those who have not
    chosen another zone."""
    chat_websocket_url: str = ""
    """Where an XMPP server takes WebSockets (RFC 7395): the console's page Chat goes there. `coronet up` sets this and
    the next two, for a trial; without it, there is no such page."""
    chat_jid: str = ""
    chat_password: SecretStr = SecretStr("")
    metrics_bind: str = "127.0.0.1"
    metrics_port: int = Field(default=0, ge=0, le=65535)
    """Where a worker or bot serves /livez, /readyz and /metrics; 0 takes a free port."""
    metrics_networks: Annotated[tuple[IPvAnyNetwork, ...], BeforeValidator(_comma_separated)] = tuple(
        map(ip_network, _PRIVATE_NETWORKS)
    )
    """Networks whose clients may read /metrics of any process: loopback and private ones unless set; empty for none."""
    metrics_token: SecretStr = SecretStr("")
    """Whoever sends this as ``Authorization: Bearer …`` may read /metrics from anywhere. The console sends it to
    workers and bots, so all processes need the same. Empty: there is no such token."""

    poll_interval_s: float = Field(default=900.0, ge=1.0)
    """Corona's τ: how often one node polls one channel, at most; n nodes in turn poll it n times as often."""
    goal: Goal = Goal.LITE
    """What polls are shared out for: ``lite`` (the mean delay of a subscription), ``fair`` (that of a notification: who
    publishes rarely is asked rarely), ``fair-sqrt`` and ``fair-log`` (in between), or ``fast`` (as few polls as keep
    ``target_delay_s``). This and the next four are what a fleet begins with."""
    polls_per_channel: float = Field(default=3.0, gt=0)
    """There are as many polls to share out, per τ, as all subscribers would make by themselves, and at least so many
    for each channel: 3 let one subscriber's channel be polled by three workers in turn."""
    budget_polls_per_minute: float | None = Field(default=None, gt=0)
    """A cap on the whole fleet's polls, below which the most wanted channels come first; none if not set."""
    target_delay_s: float = Field(default=60.0, gt=0)
    """With the goal ``fast``: the mean time from a publisher's change to the poll that sees it, over subscriptions."""
    longest_wait_s: float = Field(default=43_200.0, gt=0)
    """No channel's mean wait is longer, unless politeness or the cap allow no less."""
    max_polls_per_hour: float = Field(default=12.0, gt=0)
    """Politeness: polls of one public channel by the whole fleet."""
    host_requests_per_s: float = Field(default=1.0, gt=0)
    """Politeness: requests to one public site (registrable domain) by the whole fleet, unless an admin set others."""
    address_requests_per_s: float = Field(default=10.0, gt=0)
    """Politeness: requests to one network (IPv4 /24, IPv6 /48), which may serve many sites, by the whole fleet."""
    egress_group: str = ""
    """Name of the address that publishers see this node under. Empty: the whole fleet is behind one address."""
    egress_requests_per_s: float = Field(default=1.0, gt=0)
    """Politeness: requests to one public site by the nodes of one egress group; the fleet's bound holds besides."""

    nodes_per_worker: int = Field(default=1, ge=1, le=100)
    """Nodes that one worker process is. More than one only serves experiments: they share what a node has alone."""
    lease_ttl_s: float = Field(default=6.0, ge=1.0)
    """A node that has not renewed its lease for this long is taken to be dead."""
    maintenance_interval_s: float = Field(default=10.0, ge=0.5)
    """How often soft state (polling sets, owned channels, intents) is sent and healed."""

    cluster_secret: SecretStr = SecretStr("")
    """Workers prove with it that they are of one fleet, and hand contents to each other. Empty: they do not, and get
    everything from Redis. Whoever knows it can pass for a worker."""
    content_cache_bytes: int = Field(default=16 * 1024 * 1024, ge=0)
    """How much of channels' contents a worker keeps in memory, for itself and for others."""
    near_rtt_s: float = Field(default=0.005, gt=0)
    """Workers are near each other up to this round-trip time: a worker knows what its near ones have, and links
    between those that are far are few."""

    keyspace_capacity: float = Field(default=1000.0, gt=0)
    """How many people are told per second out of one part of the subscriptions (a keyspace), at most; 1,000 that nobody
    tells anything count as one. Above 90 % a part is divided, below 54 % it can be joined with another again."""

    allow_private: bool = False
    """Opens the socket guard to loopback addresses. For trials and tests only."""
    extra_ports: Annotated[tuple[int, ...], BeforeValidator(_comma_separated)] = ()
    """Ports of publishers allowed besides 80, 443, 8080 and 8443."""

    who_may_use: WhoMayUse = "open"
    """Who may talk to the bot: everybody (``open``), those in ``allowed_users`` (``listed``), or they and whoever has
    an invitation (``invited``: ``coronet admin invite`` makes one)."""
    allowed_users: Annotated[tuple[str, ...], BeforeValidator(_comma_separated)] = ()
    """Bare JIDs (``alice@example.org``) and domains (``example.org``), with commas between them."""

    messages_per_s_per_user: float = Field(default=1.0, gt=0)
    """Governor: messages to one recipient, after a burst of five; what is above is held back and coalesced, and of a
    flood there are fewer."""
    max_subscriptions_per_user: int = Field(default=200, ge=1)
    max_new_urls_per_hour: int = Field(default=20, ge=1)
    max_commands_per_minute: int = Field(default=20, ge=1)
    max_watches_per_user: int = Field(default=50, ge=1)
    public_from_subscribers: int = Field(default=3, ge=1)
    """A channel can be found by others, and its entries reach their `watch`, once so many people subscribe to it, or an
    admin lists it; never if its URL carries what may be a secret."""

    pubsub_service: str = ""
    """Where each channel that anybody may find is published as a node of its own (XEP-0060, Atom): the address of a
    service such as ``pubsub.example.org``, on which the bot may make nodes. Empty: nowhere."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_json: bool = True

    def policy(self) -> FleetPolicy:
        """Return what Corona has to know of these, until the store has other aims."""
        return FleetPolicy(
            poll_interval_s=self.poll_interval_s,
            max_polls_per_hour=self.max_polls_per_hour,
            site_requests_per_s=self.host_requests_per_s,
            maintenance_interval_s=self.maintenance_interval_s,
            aims=FleetObjective(
                goal=self.goal,
                polls_per_channel=self.polls_per_channel,
                budget_polls_per_minute=self.budget_polls_per_minute,
                delay_s=self.target_delay_s,
                longest_wait_s=self.longest_wait_s,
            ),
        )


PRESETS: dict[Preset, dict[str, object]] = {
    "trial": {
        "poll_interval_s": 30.0,
        "maintenance_interval_s": 5.0,
        "lease_ttl_s": 4.0,
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
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsInvalid(f"The settings file {path} cannot be read: {error}") from error


def _environment(environ: Mapping[str, str]) -> dict[str, object]:
    return {
        name: environ[f"CORONET_{name.upper()}"]
        for name in Settings.model_fields
        if f"CORONET_{name.upper()}" in environ
    }


def _files(environ: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in Settings.model_fields:
        path = environ.get(f"CORONET_{name.upper()}_FILE")
        if path:
            try:
                found[name] = Path(path).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise SettingsInvalid(f"CORONET_{name.upper()}_FILE: {error}") from error
    return found


def layers(environ: Mapping[str, str], arguments: Mapping[str, object]) -> list[tuple[str, dict[str, object]]]:
    """Return the layers, weakest first, as (where from, values)."""
    given = [
        ("settings file", _toml(environ)),
        ("environment", _environment(environ)),
        ("secret file", _files(environ)),
        ("argument", dict(arguments)),
    ]
    chosen = "single"
    for _, values in given:
        chosen = str(values.get("preset", chosen))
    preset = next((name for name in get_args(Preset) if name == chosen), None)
    if preset is None:
        raise SettingsInvalid(f"There is no preset {chosen!r}; choose one of {', '.join(get_args(Preset))}.")
    return [(f"preset {chosen}", dict(PRESETS[preset])), *given]


def load(environ: Mapping[str, str] | None = None, **arguments: object) -> Settings:
    """Return the effective settings. Raises :class:`SettingsInvalid` naming each bad one."""
    merged: dict[str, Any] = {}
    for _, values in layers(os.environ if environ is None else environ, arguments):
        merged.update(values)
    try:
        return Settings(**merged)
    except ValidationError as error:
        lines = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
        raise SettingsInvalid(f"Settings: {lines}") from None


def origins(environ: Mapping[str, str] | None = None, **arguments: object) -> dict[str, str]:
    """Return, for each setting's name, the layer that decided it."""
    found = dict.fromkeys(Settings.model_fields, "default")
    for where, values in layers(os.environ if environ is None else environ, arguments):
        found.update(dict.fromkeys(values, where))
    return found


def is_tracing_enabled(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether OpenTelemetry's own variables, which are not ours to rename, say that traces go anywhere."""
    found = os.environ if environ is None else environ
    if found.get("OTEL_SDK_DISABLED", "").lower() == "true" or found.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(
        found.get(name)
        for name in ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    )
