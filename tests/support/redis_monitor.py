"""The commands that Redis executes, by the task of workers that they belong to, as MONITOR shows them."""

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_TASKS = {
    "ring": r"cn:\{r\}",
    "inboxes": r"cn:\{n:",
    "policy": r"cn:\{(?:p|hosts)\}",
    "registry": r"cn:\{g",
    "channels": r"cn:\{c:",
    "polls": r"cn:\{h:",
    "key groups": r"cn:\{clash:",
    "matrices": r"cn:\{mx\}",
    "directory": r"cn:\{m",
}
"""Regular expressions for the beginnings of the keys of each task."""
_TASK = re.compile("|".join(f"(?P<{task.replace(' ', '_')}>{pattern})" for task, pattern in _TASKS.items()))
_ARGUMENT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(?:x..|.)")
_LONGEST_LINE = 1 << 26


@dataclass
class CommandTally:
    """Counts of commands by (task, command name), including commands in scripts, and bytes of requests by task."""

    commands: Counter[tuple[str, str]] = field(default_factory=Counter)
    request_bytes: Counter[str] = field(default_factory=Counter)

    def add(self, line: str) -> None:
        """Count a line of MONITOR. The commands of a script belong to its task."""
        found = _TASK.search(line)
        task = found.lastgroup.replace("_", " ") if found and found.lastgroup else "other"
        arguments = _ARGUMENT.findall(line)
        if not arguments:
            return
        self.commands[task, arguments[0].upper()] += 1
        if " lua] " not in line.partition('"')[0]:
            self.request_bytes[task] += sum(_bulk_bytes(len(_ESCAPE.sub("x", each))) for each in arguments) + 5

    def by_task(self) -> Counter[str]:
        """Return the number of commands by task."""
        found = Counter[str]()
        for (task, _), count in self.commands.items():
            found[task] += count
        return found


async def tally_commands(redis_url: str, for_s: float) -> CommandTally:
    """Count the commands that a Redis on a Unix socket executes during ``for_s`` seconds."""
    tally = CommandTally()
    reader, writer = await asyncio.open_unix_connection(urlsplit(redis_url).path, limit=_LONGEST_LINE)

    async def read() -> None:
        while line := await reader.readline():
            tally.add(line.decode("ascii", "replace"))

    try:
        writer.write(b"MONITOR\r\n")
        await asyncio.wait_for(read(), for_s)
    except TimeoutError:
        pass
    finally:
        writer.close()
    return tally


def _bulk_bytes(length: int) -> int:
    """Return the size of a bulk string of ``length`` bytes in Redis's protocol."""
    return length + len(str(length)) + 5
