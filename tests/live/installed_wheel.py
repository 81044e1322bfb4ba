"""A wheel in a bare environment: ``python -m tests.live.installed_wheel dist/coronet-….whl``.

Installs the wheel and what it requires into a new virtual environment outside the checkout, runs ``coronet up`` from
there, and subscribes a trial account to the sample feed. Prints JSON: how long each step took. Fails unless an entry
that was published after the subscription is delivered.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.product_process import Product

_DELIVERED_WITHIN_S = 90.0


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel into a new environment in ``folder``; return the path of its ``coronet``."""
    subprocess.run([Path(sys.base_prefix) / "bin/python3", "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    quiet = ("--quiet", "--no-input", "--disable-pip-version-check", "--only-binary", ":all:")
    subprocess.run([python, "-m", "pip", "install", *quiet, wheel], check=True, cwd=folder)
    code = "import bots, service, workers; print(service.__file__)"
    place = subprocess.run([python, "-P", "-c", code], check=True, cwd=folder, capture_output=True, text=True).stdout
    if not place.startswith(str(folder)):
        raise RuntimeError(f"The environment is not bare: service is imported from {place}.")
    return folder / "bin/coronet"


async def first_delivery(product: Product) -> dict[str, float]:
    """Start the product, subscribe to the sample feed and wait for its next entry; return durations in seconds."""
    try:
        durations_s = {"start": await product.start()}
        async with product.chat(0) as alice:
            begun_s = time.monotonic()
            answer = await alice.say(product.ready["sample_feed_url"])
            if "Subscribed" not in answer:
                raise RuntimeError(f"The bot answered {answer!r}.")
            await alice.wait_for(
                lambda message: "Entry " in message.body and message.body != answer, _DELIVERED_WITHIN_S
            )
            durations_s["first delivery"] = time.monotonic() - begun_s
    finally:
        stopping_s = await product.stop()
    return {**durations_s, "stop": stopping_s}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel.resolve()
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="coronet-wheel-") as folder:
        begun_s = time.monotonic()
        coronet = install(wheel, Path(folder) / "environment")
        installed_s = time.monotonic() - begun_s
        version = subprocess.run([coronet, "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]
        if f"-{version}-" not in wheel.name:
            raise RuntimeError(f"{wheel.name} installs version {version}.")
        os.chdir(folder)
        durations_s = asyncio.run(first_delivery(Product(Path(folder) / "state", program=(str(coronet),))))
    steps_s = {step: round(duration_s, 1) for step, duration_s in {"install": installed_s, **durations_s}.items()}
    print(json.dumps({"wheel": wheel.name, "seconds": steps_s}))  # noqa: T201 - this is its output


if __name__ == "__main__":
    main()
