# ruff: noqa: INP001 - a script beside its compose file, not a package
"""Makes every secret of the compose stack and the fleet's id, once: ``docker compose run --rm bootstrap``.

Needs Python and openssl and nothing else, so it also runs on the host: ``sudo python3 bootstrap.py``.
What exists stays as it is; to change a secret, delete its file and run this again. Compose mounts
secret files with the owner they have on the host, hence the ``chown`` to the containers' user.
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
PASSWORDS = ("redis_password", "xmpp_component_password", "console_admin_token", "cluster_secret")
CERTIFICATE = ("xmpp_tls.key", "xmpp_tls.crt")
CERTIFICATE_DAYS = 3650
FLEET_ID = "store-identity.json"


def write_secret(path: Path, text: str) -> None:
    """Write the file whole or not at all, readable by its owner only."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def redis_users(password: str) -> str:
    """Return the ACL file: one user who can log in, for our keys only and for nothing that administers or endangers it.

    Redis 7 replays its append-only file as the user ``default``, and leaves out what that user may not do: so
    ``default`` may do everything, but is off and has no password, so that nobody can log in as it.
    """
    digest = hashlib.sha256(password.encode()).hexdigest()
    users = ("default reset ~* &* +@all", f"coronet on #{digest} ~cn:* &* +@all -@admin -@dangerous +info")
    return "".join(f"user {user}\n" for user in users)


def make_certificate(folder: Path) -> None:
    """Make a self-signed certificate for the chat server on this machine. Raises CalledProcessError."""
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-days", str(CERTIFICATE_DAYS), "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    with tempfile.TemporaryDirectory() as made:
        key, certificate = (Path(made) / name for name in CERTIFICATE)
        subprocess.run(  # noqa: S603 - every word of it stands here
            [*argv, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
        )
        for path in (key, certificate):
            write_secret(folder / path.name, path.read_text())


def make_fleet_id(folder: Path) -> list[str]:
    """Make the file with the fleet's id, by which programs know their store; return its name if it was not there.

    Programs keep in it what they saw of the store. Without this file they would take any store for theirs.
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
    """Make what is missing in the folder and return the names of what was made."""
    folder.mkdir(mode=0o700, exist_ok=True)
    missing = [name for name in PASSWORDS if not (folder / name).exists()]
    for name in missing:
        write_secret(folder / name, secrets.token_urlsafe(32) + "\n")
    write_secret(folder / "redis_users.acl", redis_users((folder / "redis_password").read_text().strip()))
    if not all((folder / name).exists() for name in CERTIFICATE):
        make_certificate(folder)
        missing += CERTIFICATE
    if os.geteuid() == 0:
        for path in folder.iterdir():
            os.chown(path, CONTAINER_UID, CONTAINER_UID)
    return missing


def main() -> None:
    """Bootstrap the folder beside this file and say what was done."""
    folder = Path(__file__).resolve().parent / "secrets"
    made = bootstrap(folder) + make_fleet_id(folder.with_name("state"))
    sys.stdout.write(f"{folder}: made {', '.join(made)}\n" if made else f"{folder}: everything is there\n")
    if os.geteuid() != 0:
        sys.stdout.write(f"Not root: now give the files to user {CONTAINER_UID}, or the containers cannot read them.\n")


if __name__ == "__main__":
    main()
