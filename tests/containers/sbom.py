"""Builds the image of Coronet and lists its packages: ``python -m tests.containers.sbom FILE`` (CycloneDX JSON)."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.containers.build import build_images, tags
from tests.containers.engine import ROOT, environment, exclusive, podman


@contextlib.contextmanager
def mounted(environ: dict[str, str]) -> Iterator[Path]:
    """Mount the image of Coronet, and yield the folder with its files."""
    image = f"localhost/{tags()['coronet']}"
    try:
        yield Path(podman(environ, "image", "mount", image))
    finally:
        podman(environ, "image", "unmount", image)


def write_sbom(environ: dict[str, str], file: Path) -> None:
    """Write the document about the image. Raises CalledProcessError."""
    with mounted(environ) as folder:
        subprocess.run([sys.executable, ROOT / "scripts/sbom.py", "image", folder, file], check=True)


if __name__ == "__main__":
    with exclusive():
        build_images("coronet")
        write_sbom(environment(building=True), Path(sys.argv[1]))
