"""Builds the images, tests the stack in namespaces, and removes all but the images: ``python -m tests.containers``.

Arguments are pytest's. One run waits for another one of the same user.
"""

import subprocess
import sys

from tests.containers.build import build_images, fetch_images_of_others, tags
from tests.containers.engine import exclusive

NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
PYTEST = ("-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "containers")


def main() -> int:
    """Return the exit status of pytest, or 1 if an image cannot be built."""
    with exclusive():
        try:
            build_images(*tags())
            fetch_images_of_others()
        except subprocess.CalledProcessError as error:
            sys.stderr.write(f"{error}\n{error.stderr or ''}\n")
            return 1
        argv = [*NAMESPACES, sys.executable, *PYTEST, "tests/containers", *sys.argv[1:]]
        return subprocess.run(argv, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
