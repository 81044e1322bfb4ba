"""The only importer of slixmpp: ``connection`` keeps a stream up and hands out what comes in.

slixmpp logs in, parses, and speaks XEP-0198. What people and their software want of us is answered by
:mod:`bots`, as values and as text.
"""

from bots.xmpp.connection import Connection

__all__ = ["Connection"]
