"""WHAT CHANGED: from the bytes a publisher sent to the entries nobody has been told about yet.

Rules of this room: no network and no store. All of it is pure, but for ``sandbox``, which does its I/O over
pipes. What reads documents loads feedparser and lxml and can take minutes on crafted input: the programs reach
it only through ``sandbox``, whose children the kernel kills when one document uses up what it gets.

- One document, one question: ``examine`` (what is new in a channel), ``reading`` (what is this), asked over
  ``wire`` and answered in ``sandbox_child``, which ``sandbox_confinement`` keeps from files and network.
- A feed: ``parse`` turns bytes (``charset``, ``prolog``) into a ParsedFeed, by ``strict`` where a fast path is
  sure (it goes past entries that are ``familiar``), else by ``tolerant``, or ``jsonfeed``; ``limits``, ``wishes``
  and ``relations`` read what stands beside the entries. ``identity`` says which are new: ``traces`` of each,
  ``matching`` with the ``remembered``; ``edits`` says which changes are somebody's work; ``entries`` and ``text``
  make them plain.
- A page: ``page`` and ``pagelines`` turn bytes into lines; ``compare`` says what is new (``linediff``, ``blocks``)
  without what changes by itself (``volatile``).
- Which document: ``urls`` (one channel per canonical URL), ``discover`` and ``likely`` (from a page to its feed),
  ``opml`` (lists of them, which ``opml_parser`` reads).
- What follows: ``pace`` (when to ask next), ``outage`` and ``verdicts`` (what failures prove), ``websub`` (hubs),
  ``articles`` and ``parts`` (what goes out together, and what only once).
"""
