"""The program of a parser process, which handles requests from stdin one by one until stdin is closed.

The time and memory of the process are limited (see ``resource_limits``). The process gives up access to files, network
and other programs before it reads the first request (see ``confinement``).

If the parent dies, stdin is closed. The process then ends after the current request. If the request takes too long, the
timers end the process.
"""

import contextlib
import encodings
import functools
import gc
import importlib
import pkgutil
import signal
import sys
from collections.abc import Callable
from importlib.machinery import BuiltinImporter, FrozenImporter
from typing import Any, BinaryIO

import msgspec

from service.errors import FeedError, UserError, to_fault
from service.feeds.sandbox.confinement import confine
from service.feeds.sandbox.protocol import (
    LENGTH_BYTES,
    Confinement,
    DetectChanges,
    ParseDocument,
    ParseOpml,
    ParserRequest,
    ParserResponse,
    encode_frame,
)
from service.feeds.sandbox.resource_limits import CPU_S, WALL_S, cpu_time_s, limit_memory, needs_restart, set_timers

_LAZY_IMPORTS = ("idna.uts46data", "lxml.cssselect", "xml.sax.expatreader")


def serve(requests: BinaryIO, responses: BinaryIO, confinement: Confinement) -> None:
    """Handle each request from ``requests`` and write its response to ``responses``, until ``requests`` is closed.

    Each response includes ``confinement``, the kernel feature that confines this process.
    """
    # The timers that limit the process's time run while a request is handled.
    decoder: msgspec.msgpack.Decoder[ParserRequest] = msgspec.msgpack.Decoder(ParserRequest)
    while length := requests.read(LENGTH_BYTES):
        request = decoder.decode(requests.read(int.from_bytes(length, "big")))
        began_s = cpu_time_s()
        set_timers(min(request.cpu_s, CPU_S) if isinstance(request, DetectChanges) else CPU_S, WALL_S)
        result = fault = None
        try:
            result = _load_handlers()[type(request)](request)
        except (FeedError, UserError) as error:
            fault = to_fault(error)
        frame = encode_frame(ParserResponse(result, fault, confinement, needs_restart(), cpu_time_s() - began_s))
        set_timers(0, 0)
        responses.write(frame)
        responses.flush()


@functools.cache
def _load_handlers() -> dict[type[ParserRequest], Callable[[Any], Any]]:
    """Import the parsers; map each type of request to the function that handles it."""
    # The first call loads all modules that any document needs (0.3 s).

    # Imported here, because memory is limited before the parsers are loaded.
    from service.feeds.opml_parser import parse as parse_opml  # noqa: PLC0415 - see above
    from service.feeds.sandbox.parser_handlers import detect_changes, parse_document  # noqa: PLC0415 - see above

    for name in _LAZY_IMPORTS:
        importlib.import_module(name)
    for encoding in pkgutil.iter_modules(encodings.__path__, "encodings."):
        with contextlib.suppress(ImportError):  # some exist on Windows only
            importlib.import_module(encoding.name)
    # Loaded modules live as long as the process: exclude them from further garbage collections.
    gc.collect()
    gc.freeze()
    return {
        ParseDocument: parse_document,
        DetectChanges: detect_changes,
        ParseOpml: lambda request: parse_opml(request.body),
    }


def main() -> None:
    """Run a parser process: limit its memory, load the parsers, confine it, and handle the parent's requests."""
    limit_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the parent closes stdin
    for name in sys.argv[1:]:  # modules that only some parser processes need
        importlib.import_module(name)
    _load_handlers()  # before the first document, because the publisher's budget pays for its processor time
    # No module is searched for in directories, which the confined process cannot read.
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter]
    serve(sys.stdin.buffer, sys.stdout.buffer, confine())


if __name__ == "__main__":
    main()
