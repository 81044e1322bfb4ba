"""The parsing of feeds and web pages, and the detection of changes in them: from bytes to new and edited entries.

This package uses no network and no store. Except for the modules in ``sandbox`` that manage processes, its modules are
pure: they do no I/O, and the time is an argument. Parsing loads feedparser and lxml, and can take minutes for crafted
input; therefore other packages parse only through ``sandbox``, whose processes the kernel kills when a document exceeds
its limits.

- ``sandbox``: the parser processes with their limits and confinement, their client and their protocol.
- ``change_detection`` handles the requests to a parser process.
- ``parse`` turns bytes into a ParsedFeed. It calls ``parsing.json_feed`` for JSON; for XML it calls
  ``parsing.fast_parser``, or ``parsing.feedparser_adapter`` where ``fast_parser`` does not apply.
- ``entries``: ``entry_identity`` detects the new and edited entries of a feed; ``version_parts`` divides a version (a
  numbered set of changes) into the parts that are delivered separately.
- ``pages``: ``content_extraction`` turns bytes into the lines of a page's main content, ``page_change_detection``
  compares them with earlier lines, and ``feed_autodiscovery`` finds the feeds to which a page links.
- ``urls``: canonical URLs, by which channels are identified. ``feed_url_guesses``: probable feeds of a page.
- ``opml``, ``opml_parser``: subscription lists.
- ``polling_hints``: the earliest time of the next poll by the publisher's hints. ``channel_health``,
  ``outage_detector``: conclusions from failed polls. ``websub``: the subscription of a channel at a hub.
"""
