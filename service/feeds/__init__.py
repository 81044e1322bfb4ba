"""WHAT CHANGED: from the bytes a publisher sent to the entries nobody has been told about yet.

Rules of this room: no network and no store. All of it is pure, but for ``sandbox``, which does its I/O over
pipes. What reads documents loads feedparser and lxml and can take minutes on crafted input: the programs reach
it only through ``sandbox``, whose children the kernel kills when one document uses up what it gets.

- One document, one request: ``examine`` says what is new in a channel, or what a document is. Requests are sent over
  ``protocol`` and answered in ``parser_process``, which ``confinement`` keeps from files and network.
- A feed: ``parse`` turns bytes (``charset``) into a ParsedFeed, by ``strict`` where the fast path applies (it skips
  entries that are ``familiar``), else by ``tolerant``, or ``jsonfeed``; ``limits`` and ``wishes`` read the rest.
  ``identity`` says which entries are new or edited, by the ``traces`` of each and those ``remembered``.
- A page: ``page`` turns bytes into lines; ``compare`` says what is new (``linediff``) without what
  changes by itself (``volatile``).
- Which document: ``urls`` (one channel per canonical URL), ``page`` and ``likely`` (from a page to its feed),
  ``opml`` (lists of them, which ``opml_parser`` reads).
- What follows: ``pace`` (when to poll next), ``verdicts`` (what failures prove), ``websub`` (hubs), ``parts`` (what
  is delivered together, and what only once).
"""
