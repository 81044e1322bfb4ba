# ruff: noqa: INP001 - a script, not a package
"""Script that removes unused files from the image's packages: ``python trim.py``, with the Python of the image.

Tests, headers, other languages' locales and debugging symbols are more than half of the files that pip installs. Byte
code is kept for exactly the modules that the programs import, because containers cannot write it. All modules are
imported after the removal, so that the build fails if one of them needs a removed file.
"""

import importlib
import pkgutil
import shutil
import subprocess
import sysconfig
from pathlib import Path

PROGRAMS = ("service", "bots", "workers")
LANGUAGES = ("de", "en", "es", "fr", "it", "nl", "pl", "pt")
"""The languages of the bot; Babel's data for other languages is removed."""
UNUSED_FOLDERS = (
    "**/__pycache__",
    "**/include",
    "**/tests",
    "lxml/isoschematron",
    "numpy/distutils",
    "numpy/f2py",
    "pydantic/v1",
)
UNUSED_FILES = (
    "**/*.a",
    "**/*.[ch]",
    "**/*.p[xy][dix]",
    "lxml/objectify.*",
    "numpy/_core/_simd.*",
    "rapidfuzz/fuzz_cpp*.so",  # its package needs these scorers, which no program uses, and has them in Python, too
)
HIGHLIGHTED = ("__init__", "_mapping", "python")
"""The lexers of Pygments that are kept: rich marks up Python in tracebacks."""
NOT_INSTALLED = ("matplotlib", "opentelemetry")
"""Packages of extras that the image does not have."""


def remove_unused(packages: Path) -> None:
    """Delete the files in the folder ``packages`` that no program reads."""
    for pattern in UNUSED_FOLDERS:
        for folder in list(packages.glob(pattern)):
            shutil.rmtree(folder, ignore_errors=True)
    unused = {path for pattern in UNUSED_FILES for path in packages.glob(pattern)}
    unused |= {path for path in packages.glob("babel/locale-data/*.dat") if not is_used(path.stem)}
    unused |= {path for path in packages.glob("pygments/lexers/*.py") if path.stem not in HIGHLIGHTED}
    for path in unused:
        path.unlink()


def is_used(locale: str) -> bool:
    """Return whether the bot uses a locale of Babel; all locales inherit from ``root``."""
    return locale.partition("_")[0] in {"root", *LANGUAGES}


def strip_symbols(packages: Path) -> None:
    """Remove debugging symbols from the shared libraries in ``packages``. Raises CalledProcessError.

    Libraries in ``*.libs`` were patched when their wheel was made: ``strip`` would make them unreadable.
    """
    libraries = [path for path in packages.rglob("*.so*") if not path.parent.name.endswith(".libs")]
    subprocess.run(["strip", "--strip-unneeded", *libraries], check=True)  # noqa: S603, S607 - the files are the image's


def import_all() -> None:
    """Import every module of the programs, which writes the byte code of each imported module."""
    for name in PROGRAMS:
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            if module.name.endswith("__main__"):
                continue
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if str(error.name).partition(".")[0] not in NOT_INSTALLED:
                    raise


if __name__ == "__main__":
    site_packages = Path(sysconfig.get_path("purelib"))
    remove_unused(site_packages)
    strip_symbols(site_packages)
    import_all()
