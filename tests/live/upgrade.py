"""A rolling restart from one version to the next under traffic: ``python -m tests.live.upgrade [--from REVISION]``.

Builds a wheel of an older commit (by default the newest tag, or else the commit before the first one with versions of
stored data) and one of this tree. ``coronet up`` runs the older one; then its workers, the bot and the console are
replaced one after another by the newer version, while entries are published. Prints JSON: the versions, the steps,
and what the delivery audit found. Fails if an entry was lost, shown twice, or in the wrong order.

Each process imports the version that is current when it starts (``sitecustomize``), and keeps it.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from service.store.client import keys
from tests.support.processes import is_alive
from tests.support.product_traffic import Traffic, entries_coming, traffic, until_told_something_new
from tests.support.waiting import until_so

_ROOT = Path(__file__).parents[2]
_FIRST_WITH_VERSIONS = "service/operations/upgrade_check.py"
_CHOOSE_VERSION = """
import os, sys
sys.path.insert(0, os.path.realpath({current!r}))
"""


def _git(*words: str) -> str:
    return subprocess.run(("git", *words), cwd=_ROOT, check=True, capture_output=True, text=True).stdout.strip()


def previous_revision() -> str:
    """Return the newest tag that is not this commit, or else the commit before the first one with versions of data."""
    here = _git("rev-parse", "HEAD")
    for tag in _git("tag", "--sort=-creatordate", "--merged").split():
        if _git("rev-parse", f"{tag}^{{commit}}") != here:
            return tag
    first = _git("log", "--diff-filter=A", "--format=%H", "-1", "--", _FIRST_WITH_VERSIONS)
    return _git("rev-parse", f"{first}^" if first else "HEAD")


@contextmanager
def _checked_out(revision: str, directory: Path) -> Iterator[Path]:
    _git("worktree", "add", "--quiet", "--detach", str(directory), revision)
    try:
        yield directory
    finally:
        _git("worktree", "remove", "--force", str(directory))


def install(source: Path, target: Path) -> Path:
    """Build a wheel of the tree ``source``, and unpack it in ``target``."""
    wheels = target.with_name(f"{target.name}-wheel")
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    subprocess.run((*command, "--wheel-dir", str(wheels), str(source)), check=True)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


async def _replace(live: Traffic, kind: str, pid: int) -> None:
    """Stop one process; the supervisor starts another, which has the version that is current then."""
    os.kill(pid, signal.SIGTERM)
    await until_so(lambda: not is_alive(pid), f"process {pid} has ended", within_s=30)
    await until_so(lambda: pid not in live.product.pids(kind), f"another {kind} runs", within_s=30)


async def run(revision: str) -> dict[str, Any]:
    """Run it; return the report."""
    with tempfile.TemporaryDirectory(prefix="up-") as work:
        base = Path(work)
        with _checked_out(revision, base / "source") as source:
            old = install(source, base / "old")
        new, current, hook = install(_ROOT, base / "new"), base / "current", base / "hook"
        current.symlink_to(old)
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(_CHOOSE_VERSION.format(current=str(current)))
        os.environ |= {"PYTHONPATH": str(hook), "PYTHONSAFEPATH": "1"}
        steps = []
        async with traffic(base) as live:
            await live.publish_once()
            await live.subscribe_all()
            async with entries_coming(live):
                await until_told_something_new(live)
                current.unlink()
                current.symlink_to(new)
                for kind in ("workers", "bot", "console"):
                    for pid in live.product.pids(kind):
                        await _replace(live, kind, pid)
                        await until_told_something_new(live)
                        steps.append(f"{kind}: {pid} replaced")
                await live.last_one_leaves_a_feed()
                await until_told_something_new(live)
            verdict = await live.settle()
            async with live.product.store() as store:
                schema = await store.redis.call("HGET", keys.STORE_IDENTITY, "schema")
        return {
            "from": _git("describe", "--always", "--tags", revision),
            "to": _git("describe", "--always", "--tags", "--dirty"),
            "steps": steps,
            "schema": int(schema or 0),
            "published": verdict.published,
            "owed": verdict.owed,
            "received": verdict.received,
            "problems": verdict.broken,
        }


def main() -> None:
    """Run it, print the report, and fail if something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="revision", default="", help="commit or tag of the older version")
    options = parser.parse_args()
    report = asyncio.run(run(options.revision or previous_revision()))
    print(json.dumps(report, indent=2))  # noqa: T201 - the report of a program
    sys.exit(bool(report["problems"]) or not report["owed"] or not report["schema"])


if __name__ == "__main__":
    main()
