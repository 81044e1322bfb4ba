"""Builds the images of the compose stack.

Base images and those of others are pulled. Where no registry can be reached, Debian's is made by debootstrap, and those
of Redis and Prometheus from that one with Debian's packages; Debian has no Grafana. What pip is configured with on this
machine (an index, an authority) is used in the build as well.
"""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tests.containers.engine import ROOT, RUN, environment, podman

COMPOSE = ROOT / "compose"
DOCKERFILES = {"coronet": "Dockerfile", "redis": "redis/Dockerfile", "prosody": "prosody/Dockerfile"}
_UNUSED = ("var/lib/apt/lists/*", "var/cache/apt/*", "usr/share/man/*", "usr/share/locale/*")
_APT_SETTINGS = ("apt.conf.d/*", "sources.list", "sources.list.d/debian.sources")
_NO_CACHE = 'Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\n'
STAND_IN_VERSION = 2
"""Raised when stand-ins are made differently, because those that were made before are kept."""
_STAND_INS = {
    # Debian's package lets only its own user read /etc/redis.
    "redis": """FROM {debian}
RUN apt-get update && apt-get install --no-install-recommends --yes redis-server && apt-get clean
RUN chmod 755 /etc/redis
""",
    "prometheus": """FROM {debian}
RUN apt-get update && apt-get install --no-install-recommends --yes prometheus wget && apt-get clean
RUN install -d -o 65534 -g 65534 /prometheus
WORKDIR /prometheus
USER 65534:65534
ENTRYPOINT ["prometheus"]
""",
}


class Builder:
    """Builds with one podman."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._environ = environment(building=True)
        self._machine = machine_options(scratch)

    def base(self, image: str) -> str:
        """Return the name of an image, or of its stand-in, after making sure that it is here.

        Raises KeyError if it can neither be pulled nor be made.
        """
        for name in (image, stand_in_of(image)):
            if exists(self._environ, name):
                return name
        with contextlib.suppress(subprocess.CalledProcessError):
            podman(self._environ, "pull", "--quiet", image)
            return image
        stand_in, kind = stand_in_of(image), kind_of(image)
        if kind == "debian":
            say(f"{image} cannot be pulled: making {stand_in}")
            self._make_debian(stand_in)
        else:
            text = _STAND_INS[kind]
            say(f"{image} cannot be pulled: making {stand_in}")
            recipe = self._scratch / "Dockerfile.stand-in"
            recipe.write_text(text.format(debian=self.base(default_of("DEBIAN_IMAGE"))), encoding="utf-8")
            podman(self._environ, "build", "--network=host", "--tag", stand_in, "--file", recipe, self._scratch)
        return stand_in

    def _make_debian(self, name: str) -> None:
        root = self._scratch / "debian"
        debootstrap(root)
        for pattern in _UNUSED:
            for path in root.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in (root / "usr/share/doc").glob("*/*"):
            if path.name != "copyright":
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        (root / "etc/apt/apt.conf.d/zz-no-cache").write_text(_NO_CACHE, encoding="utf-8")
        excluded = "".join(f"path-exclude /usr/share/{part}/*\n" for part in ("doc", "man", "info", "locale"))
        excluded += "path-include /usr/share/doc/*/copyright\n"
        (root / "etc/dpkg/dpkg.cfg.d/docker").write_text(excluded, encoding="utf-8")
        archive = self._scratch / "debian.tar"
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        podman(self._environ, "import", archive, name)

    def build(self, service: str, tag: str) -> int:
        """Build the image of a service; return its size in bytes."""
        dockerfile = COMPOSE / DOCKERFILES[service]
        context = ROOT if service == "coronet" else dockerfile.parent
        options = [f"--build-arg={name}={self.base(image)}" for name, image in base_images(dockerfile).items()]
        options += [f"--build-arg=REVISION={revision()}"]
        if service == "coronet":
            options += ["--ignorefile", f"{dockerfile}.dockerignore", *self._machine]
        # The format of OCI has no health checks.
        options += ["--format=docker", "--network=host", "--layers", f"--tag=localhost/{tag}", f"--file={dockerfile}"]
        podman(self._environ, "build", *options, context)
        return int(json.loads(podman(self._environ, "image", "inspect", f"localhost/{tag}"))[0]["Size"])


def debootstrap(root: Path) -> None:
    """Make a bare Debian in a folder, with the package sources of this machine."""
    argv = ["debootstrap", "--variant=minbase", "bookworm", str(root), *mirror()]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    for pattern in _APT_SETTINGS:
        for path in Path("/etc/apt").glob(pattern):
            shutil.copy(path, root / "etc/apt" / path.relative_to("/etc/apt"))


def pip_settings() -> tuple[dict[str, str], Path | None]:
    """Return by which settings pip reaches an index from this machine, and the file of authorities that it trusts."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    found = dict(re.findall(r"(?m)^(?:global|:env:)\.(cert|index-url|trusted-host|proxy)='(.*)'$", listed))
    authorities = found.pop("cert", None)
    return found, Path(authorities) if authorities else None


def machine_options(scratch: Path) -> list[str]:
    """Return options of a build by which pip uses the index and the authorities that this machine is set up for."""
    settings, authorities = pip_settings()
    if authorities is not None:
        shutil.copy(authorities, scratch / "ca.crt")
        settings["cert"] = "/run/machine/ca.crt"
    text = "".join(f"{name} = {value}\n" for name, value in settings.items())
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
    services = services_of("compose.yaml")
    return {name: services["bootstrap" if name == "coronet" else name]["image"] for name in DOCKERFILES}


def services_of(file: str) -> dict[str, Any]:
    """Return the services in a compose file."""
    return dict(yaml.safe_load((COMPOSE / file).read_text(encoding="utf-8"))["services"])


def images_of_others(file: str) -> dict[str, str]:
    """Return the image of each service in a compose file that runs an image of others."""
    images = {name: service.get("image", "") for name, service in services_of(file).items()}
    return {name: image for name, image in images.items() if "/" in image}


def missing_images(files: Iterable[str]) -> list[str]:
    """Return the services of compose files whose images cannot be had here."""
    environ = environment(building=False)
    images = {name: image for file in files for name, image in images_of_others(file).items()}
    return [name for name, image in images.items() if not exists(environ, local_name(image))]


def local_name(image: str) -> str:
    """Return the name under which an image of a compose file is here."""
    if "/" not in image:
        return f"localhost/{image}"
    return image if exists(environment(building=False), image) else stand_in_of(image)


def kind_of(image: str) -> str:
    """Return what an image contains: the last part of its name, without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def stand_in_of(image: str) -> str:
    """Return the name of an image's stand-in."""
    return f"localhost/stand-in-{STAND_IN_VERSION}/{image.partition('@')[0].rpartition('/')[2]}"


def exists(environ: dict[str, str], image: str) -> bool:
    """Return whether an image is here."""
    with contextlib.suppress(subprocess.CalledProcessError):
        podman(environ, "image", "inspect", image)
        return True
    return False


def revision() -> str:
    """Return the commit of the checkout."""
    argv = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def build_images(*services: str) -> None:
    """Build the images of some services, and print their sizes."""
    with tempfile.TemporaryDirectory(dir=RUN) as scratch:
        builder = Builder(Path(scratch))
        for service in services:
            began_s = time.monotonic()
            size = builder.build(service, tags()[service])
            say(f"{tags()[service]}: {size / 1e6:.0f} MB, built in {time.monotonic() - began_s:.0f} s")


def fetch_images_of_others() -> None:
    """Fetch the images of others that the stack runs, or make their stand-ins."""
    with tempfile.TemporaryDirectory(dir=RUN) as scratch:
        for image in images_of_others("compose.monitoring.yaml").values():
            try:
                Builder(Path(scratch)).base(image)
            except KeyError:
                say(f"{image} cannot be pulled, and Debian has no package of it: it is not tested.")
