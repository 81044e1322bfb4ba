"""Folders in commands: finds the folder that the words of a command name, and lists folders.

A folder exists while a subscription is in it, or while it has settings.
"""

from collections.abc import Callable

from bots.dialogue.read_requests import ReadRequests
from bots.replies.formatting import Folder
from service.users.preferences import folders_of


async def find_folder(requests: ReadRequests, name: str) -> Folder | None:
    """Return the user's folder with this name; None if the user has none."""
    return (await split_folder(requests, name, lambda rest: not rest))[0]


async def split_folder(requests: ReadRequests, words: str, is_rest: Callable[[str], bool]) -> tuple[Folder | None, str]:
    """Split ``words`` into the folder whose name they begin with, and the remaining words.

    ``is_rest`` returns whether remaining words make sense after the name of a folder. If no folder is named, the folder
    is None, and no word is removed. If several are, the one with the longest name is returned.
    """
    words = words.strip()
    for folder in sorted(await all_folders(requests) if words else [], key=lambda each: -len(each.name)):
        named, rest = words[: len(folder.name)], words[len(folder.name) :]
        is_named = named.casefold() == folder.name.casefold() and (not rest or rest[0].isspace())
        if is_named and is_rest(rest.strip()):
            return folder, rest.strip()
    return None, words


async def all_folders(requests: ReadRequests) -> list[Folder]:
    """Return the user's folders in alphabetical order."""
    known = folders_of(await requests.preferences())
    subscribed = await requests.subscriptions() if known else ()
    return [
        Folder(name, tuple(each for each in subscribed if each.folder.casefold() == key))
        for key, name in sorted(known.items())
    ]
