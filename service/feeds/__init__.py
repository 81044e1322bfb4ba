"""The parsing of feeds and web pages, and the detection of changes in them: from bytes to new and edited entries.

This package uses no network and no store. Except for the modules in ``sandbox`` that manage processes, its modules are
pure: they do no I/O, and the time is an argument. Parsing loads feedparser and lxml, and can take minutes for crafted
input. Therefore other packages parse only through ``sandbox``, whose processes the kernel kills when a document exceeds
its limits.

- ``sandbox``: the parser processes with their limits and confinement, their client and their protocol.
  ``sandbox.parser_handlers`` handles the requests to a parser process.
- ``parsing``: ``format_detection`` turns bytes into a ParsedFeed. It calls ``json_feed`` for JSON; for XML it calls
  ``fast_parser``, or ``feedparser_adapter`` where ``fast_parser`` does not apply.
- ``entries``: ``entry_change_detection`` detects the new and edited entries of a feed. ``version_parts`` divides a
  version (a numbered set of changes) into the parts that are delivered separately. ``duplicate_articles`` finds the
  articles that are in several channels.
- ``pages``: ``content_extraction`` turns bytes into the lines of a page's main content, and ``page_change_detection``
  compares them with earlier lines. ``feed_autodiscovery`` finds the feeds to which a page links, and
  ``feed_url_guesses`` guesses the URL of the feed if there is no such link.
- ``canonical_urls``: the URLs by which channels are identified.
- ``opml_writer``, ``opml_parser``: subscription lists.
- ``publisher_polling_hints``: the earliest time of the next poll by the publisher's hints.
- ``channel_health``, ``network_outage_detector``: conclusions from failed polls.
- ``websub_protocol``: the subscription of a channel at a hub.
"""
