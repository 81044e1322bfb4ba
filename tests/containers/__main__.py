"""Builds the images, tests the stack in namespaces, and removes all but the images: ``python -m tests.containers``.

Arguments are pytest's. One run waits for another one of the same user.
"""

import fcntl
import shutil
import subprocess
import sys

from tests.containers.build import build_all
from tests.containers.engine import HOME, RUN

NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
PYTEST = ("-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "containers")


def main() -> int:
    """Return the exit status of pytest, or 1 if an image cannot be built."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(RUN, ignore_errors=True)  # of a run that was killed
        try:
            build_all()
            argv = [*NAMESPACES, sys.executable, *PYTEST, "tests/containers", *sys.argv[1:]]
            return subprocess.run(argv, check=False).returncode
        except subprocess.CalledProcessError as error:
            sys.stderr.write(f"{error}\n{error.stderr or ''}\n")
            return 1
        finally:
            shutil.rmtree(RUN)


if __name__ == "__main__":
    sys.exit(main())
