"""WHAT CHANGED: from the bytes a publisher sent to the entries nobody has been told about yet.

Rules of this room: no network and no store. ``urls``, ``likely``, ``text`` and ``identity`` are
pure and cheap, and may run in any process. ``parse`` and ``discover`` load feedparser and lxml and can take
minutes on crafted input: the programs reach them only through ``sandbox``, whose children
are killed when they use up what one body gets. ``sandbox`` alone does I/O, over pipes.
"""
