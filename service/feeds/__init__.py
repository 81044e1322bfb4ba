"""Parsing of feeds and web pages, and detection of changes in them.

This package uses no network and no store. Its modules do no I/O and get the time as an argument, except for the modules
in ``sandbox`` that manage processes.

A malicious document can keep a parser busy for minutes. Other packages therefore call the parsers only through
``sandbox``, whose processes are killed when they exceed their limits.

- ``sandbox``: the parser processes, their limits, and the client for them.
- ``parsing``: parses bytes into a ParsedFeed.
- ``entries``: the new and edited entries of a feed.
- ``pages``: the main content of a web page, changes in it, and the feeds that a page links to.
- ``canonical_urls``: the URLs that identify channels (watched feeds and pages).
- ``opml_writer``, ``opml_parser``: subscription lists.
- ``publisher_polling_hints``: the earliest time for the next poll according to the publisher's hints.
- ``channel_health``, ``network_outage_detector``: conclusions from failed polls.
- ``websub_protocol``: subscribing to a feed at a WebSub hub.
"""
