"""Resources for channels: the list, single channels, sites, blocked hosts, and OPML."""
