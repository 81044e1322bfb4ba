"""Builds the images of the compose stack.

Base images are pulled. Where no registry can be reached, Debian's is made by debootstrap, and Redis' from that one with
Debian's package. What pip is configured with on this machine (an index, an authority) is used in the build as well.
"""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from tests.containers.engine import ROOT, RUN, environment, podman

COMPOSE = ROOT / "compose"
DOCKERFILES = {"coronet": "Dockerfile", "redis": "redis/Dockerfile", "prosody": "prosody/Dockerfile"}
_UNUSED = ("var/lib/apt/lists/*", "var/cache/apt/*", "usr/share/doc/*", "usr/share/man/*", "usr/share/locale/*")
_APT_SETTINGS = ("apt.conf.d/*", "sources.list", "sources.list.d/debian.sources")
_NO_CACHE = 'Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\n'
# Debian's package lets only its own user read /etc/redis.
_REDIS = """FROM {debian}
RUN apt-get update && apt-get install --no-install-recommends --yes redis-server && apt-get clean
RUN chmod 755 /etc/redis
"""


class Builder:
    """Builds with one podman."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._environ = environment(building=True)
        self._machine = machine_options(scratch)

    def base(self, image: str) -> str:
        """Return the name of a base image, or of its stand-in, after making sure that it is here."""
        stand_in = f"localhost/stand-in/{image.partition('@')[0].rpartition('/')[2]}"
        for name in (image, stand_in):
            with contextlib.suppress(subprocess.CalledProcessError):
                podman(self._environ, "image", "inspect", name)
                return name
        with contextlib.suppress(subprocess.CalledProcessError):
            podman(self._environ, "pull", "--quiet", image)
            return image
        say(f"{image} cannot be pulled: making {stand_in}")
        if "/debian:" in image:
            self._make_debian(stand_in)
        else:
            recipe = self._scratch / "Dockerfile.stand-in"
            recipe.write_text(_REDIS.format(debian=self.base(default_of("DEBIAN_IMAGE"))), encoding="utf-8")
            podman(self._environ, "build", "--network=host", "--tag", stand_in, "--file", recipe, self._scratch)
        return stand_in

    def _make_debian(self, name: str) -> None:
        root = self._scratch / "debian"
        subprocess.run(
            ["debootstrap", "--variant=minbase", "bookworm", root, *mirror()], check=True, stdout=subprocess.DEVNULL
        )
        for pattern in _UNUSED:
            for path in root.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for pattern in _APT_SETTINGS:
            for path in Path("/etc/apt").glob(pattern):
                shutil.copy(path, root / "etc/apt" / path.relative_to("/etc/apt"))
        (root / "etc/apt/apt.conf.d/zz-no-cache").write_text(_NO_CACHE, encoding="utf-8")
        excluded = "".join(f"path-exclude /usr/share/{part}/*\n" for part in ("doc", "man", "info", "locale"))
        (root / "etc/dpkg/dpkg.cfg.d/docker").write_text(excluded, encoding="utf-8")
        archive = self._scratch / "debian.tar"
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        podman(self._environ, "import", archive, name)

    def build(self, service: str, tag: str) -> int:
        """Build the image of a service; return its size in bytes."""
        dockerfile = COMPOSE / DOCKERFILES[service]
        context = ROOT if service == "coronet" else dockerfile.parent
        options = [f"--build-arg={name}={self.base(image)}" for name, image in base_images(dockerfile).items()]
        if service == "coronet":
            revision = subprocess.run(
                ["git", "-C", ROOT, "rev-parse", "HEAD"], check=False, capture_output=True, text=True
            ).stdout.strip()
            options += [f"--build-arg=REVISION={revision}", "--ignorefile", f"{dockerfile}.dockerignore"]
            options += self._machine
        # The format of OCI has no health checks.
        options += ["--format=docker", "--network=host", "--layers", f"--tag=localhost/{tag}", f"--file={dockerfile}"]
        podman(self._environ, "build", *options, context)
        return int(json.loads(podman(self._environ, "image", "inspect", f"localhost/{tag}"))[0]["Size"])


def machine_options(scratch: Path) -> list[str]:
    """Return options of a build by which pip uses the index and the authorities that this machine is set up for."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    found = dict(re.findall(r"(?m)^(?:global|:env:)\.(cert|index-url|trusted-host|proxy)='(.*)'$", listed))
    if "cert" in found:
        shutil.copy(found["cert"], scratch / "ca.crt")
        found["cert"] = "/run/machine/ca.crt"
    text = "".join(f"{name} = {value}\n" for name, value in found.items())
    (scratch / "pip.conf").write_text(f"[global]\n{text}", encoding="utf-8")
    return [f"--volume={scratch}:/run/machine:ro", f"--volume={scratch}/pip.conf:/etc/pip.conf:ro"]


def mirror() -> list[str]:
    """Return the mirror that apt uses for Debian 12, if any."""
    argv = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages", "Codename: bookworm"]
    return subprocess.run(argv, check=False, capture_output=True, text=True).stdout.split()[:1]


def base_images(dockerfile: Path) -> dict[str, str]:
    """Return the default of each argument of a Dockerfile that names an image."""
    return dict(re.findall(r"(?m)^ARG (\w+_IMAGE)=(\S+)$", dockerfile.read_text(encoding="utf-8")))


def default_of(argument: str) -> str:
    """Return the image that an argument of our own Dockerfile names."""
    return base_images(COMPOSE / "Dockerfile")[argument]


def tags() -> dict[str, str]:
    """Return the tag of each image that we build, as compose.yaml names it."""
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))["services"]
    return {name: services["bootstrap" if name == "coronet" else name]["image"] for name in DOCKERFILES}


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def build_all() -> None:
    """Build all images, and print their sizes."""
    RUN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RUN) as scratch:
        builder = Builder(Path(scratch))
        for service, tag in tags().items():
            began_s = time.monotonic()
            size = builder.build(service, tag)
            say(f"{tag}: {size / 1e6:.0f} MB, built in {time.monotonic() - began_s:.0f} s")
