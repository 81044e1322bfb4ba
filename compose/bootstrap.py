# ruff: noqa: INP001 - a script, not a package
"""Script that creates the secrets of the compose stack and the fleet's id: ``docker compose run --rm bootstrap``.

The script needs only Python and openssl, so that it also runs on the host: ``sudo python3 bootstrap.py``. Existing
files are kept; to change a secret, delete its file and run the script again. Compose mounts secret files with their
owner on the host, hence the ``chown`` to the containers' user.
"""

import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

CONTAINER_UID = 10001
PASSWORDS = (
    *("redis_password", "redis_cluster_password", "xmpp_component_password", "console_admin_token", "cluster_secret"),
    *("grafana_admin_password", "credentials_key"),
)
CERTIFICATE = ("xmpp_tls.key", "xmpp_tls.crt")
CERTIFICATE_DAYS = 3650
FLEET_ID = "store-identity.json"


def write_secret(path: Path, text: str) -> None:
    """Write ``text`` to the file ``path`` atomically, with mode 0600."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def redis_users(password: str, cluster_password: str) -> str:
    """Return the content of Redis's ACL file, with the users ``coronet``, ``cluster`` and ``default``.

    ``coronet`` may use Coronet's keys and harmless commands; its password is ``password``. Nodes of a Redis Cluster log
    in to each other as ``cluster``, with ``cluster_password``; this user may not read or write keys.

    Redis 7 replays its append-only file as the user ``default`` and skips commands that this user may not execute.
    Therefore ``default`` may do everything, but is disabled and has no password, so that nobody can log in as it.
    """
    coronet, cluster = (hashlib.sha256(each.encode()).hexdigest() for each in (password, cluster_password))
    subcommands = " ".join(f"+cluster|{name}" for name in ("addslotsrange", "info", "meet", "nodes", "replicate"))
    users = (
        "default reset ~* &* +@all",
        f"coronet on #{coronet} ~cn:* &* +@all -@admin -@dangerous +info",
        f"cluster on #{cluster} +ping +info +psync +replconf {subcommands}",
    )
    return "".join(f"user {user}\n" for user in users)


def make_certificate(folder: Path) -> None:
    """Create a self-signed certificate for the XMPP server on localhost. Raises CalledProcessError."""
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-days", str(CERTIFICATE_DAYS), "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    with tempfile.TemporaryDirectory() as made:
        key, certificate = (Path(made) / name for name in CERTIFICATE)
        subprocess.run(  # noqa: S603 - all arguments are constant
            [*argv, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
        )
        for path in (key, certificate):
            write_secret(folder / path.name, path.read_text())


def make_fleet_id(folder: Path) -> list[str]:
    """Create the store identity file in ``folder`` if it is missing; return the names of created files.

    The file has the fleet's id. Programs record the store's state in it. Without this file they would accept any store.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / FLEET_ID
    made = [] if path.exists() else [path.name]
    if made:
        write_secret(path, json.dumps({"fleet": secrets.token_hex(16)}))
    if os.geteuid() == 0:
        for owned in (folder, path):
            os.chown(owned, CONTAINER_UID, CONTAINER_UID)
    return made


def bootstrap(folder: Path) -> list[str]:
    """Create the missing files in ``folder`` and return their names."""
    folder.mkdir(mode=0o700, exist_ok=True)
    missing = [name for name in PASSWORDS if not (folder / name).exists()]
    for name in missing:
        write_secret(folder / name, secrets.token_urlsafe(32) + "\n")
    password, cluster_password = (
        (folder / name).read_text().strip() for name in ("redis_password", "redis_cluster_password")
    )
    write_secret(folder / "redis_users.acl", redis_users(password, cluster_password))
    write_secret(folder / "redis_cluster.conf", f"masteruser cluster\nmasterauth {cluster_password}\n")
    if not all((folder / name).exists() for name in CERTIFICATE):
        make_certificate(folder)
        missing += CERTIFICATE
    if os.geteuid() == 0:
        for path in folder.iterdir():
            os.chown(path, CONTAINER_UID, CONTAINER_UID)
    return missing


def main() -> None:
    """Create the missing files beside this script and report them."""
    folder = Path(__file__).resolve().parent / "secrets"
    made = bootstrap(folder) + make_fleet_id(folder.with_name("state"))
    sys.stdout.write(f"{folder}: created {', '.join(made)}\n" if made else f"{folder}: nothing to create\n")
    if os.geteuid() != 0:
        sys.stdout.write(
            f"Not run as root: change the owner of the files to {CONTAINER_UID}, so that containers can read them.\n"
        )


if __name__ == "__main__":
    main()
