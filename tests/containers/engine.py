"""A private podman, whose files are in the user's cache: images are kept there, all else is removed after a run."""

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coronet-containers"
IMAGES = HOME / "images"
RUN = HOME / "run"
_SETTINGS = """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "{run}/networks"
"""


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Wait until no other run of the same user uses podman's files; remove all but the images afterwards."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(RUN, ignore_errors=True)  # of a run that was killed
        RUN.mkdir()
        try:
            yield
        finally:
            shutil.rmtree(RUN)


def environment(*, building: bool) -> dict[str, str]:
    """Return the environment in which podman builds images, or runs containers of these images and keeps nothing."""
    folder = RUN / ("building" if building else "running")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "containers.conf").write_text(_SETTINGS.format(run=folder), encoding="utf-8")
    options = "" if building else f'[storage.options]\nadditionalimagestores = ["{IMAGES}"]\n'
    graph = IMAGES if building else folder / "storage"
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{graph}"\nrunroot = "{folder}/state"\n{options}', encoding="utf-8"
    )
    return {
        **os.environ,
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "DISABLE_HC_SYSTEMD": "true",
    }


def podman(environ: dict[str, str], *arguments: str | Path, given: str | None = None) -> str:
    """Run podman and return what it prints. Raises CalledProcessError."""
    argv = ["podman", *map(str, arguments)]
    done = subprocess.run(argv, env=environ, check=False, capture_output=True, text=True, input=given)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, argv[:4], done.stdout, done.stderr[-3_000:])
    return done.stdout.strip()
