"""Each way in which the guides start Coronet, from a bare Debian to the first notification: ``make first-run``.

Arguments: the names of ways, or none for all. Prints JSON: how long the steps of each way took (s). Fails if one fails.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.containers.engine import ROOT
from tests.first_run.machine import make_root
from tests.first_run.start_methods import WAYS


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the last commit."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = ROOT / "scripts/build-release"
    subprocess.run([script, folder], cwd=ROOT, env={**os.environ, "PATH": path}, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def copy_repository(folder: Path) -> Path:
    """Copy the last commit as a repository that can be cloned, with the branch ``main``."""
    subprocess.run(["git", "clone", "--quiet", "--bare", "--depth", "1", f"file://{ROOT}", folder], check=True)
    subprocess.run(["git", "-C", folder, "branch", "--force", "main", "HEAD"], check=True)
    return folder


def main() -> int:
    """Run the ways one after another; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", nargs="*", choices=[*WAYS, []])
    seconds: dict[str, dict[str, float]] = {}
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="coronet-first-run-") as folder:
        scratch = Path(folder)
        wheel = build_wheel(scratch / "dist")
        repository = copy_repository(scratch / "coronet.git")
        make_root(scratch / "bare")
        for way in parser.parse_args().way or WAYS:
            root = scratch / "root"
            subprocess.run(["cp", "-a", scratch / "bare", root], check=True)
            try:
                seconds[way] = asyncio.run(WAYS[way](root, repository, wheel))
            except (AssertionError, RuntimeError, TimeoutError) as error:
                failures[way] = str(error)
            shutil.rmtree(root)
    print(json.dumps({"seconds": seconds, "failures": failures}, indent=2))  # noqa: T201 - this is its output
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
