"""Parsers of feed documents: RSS, Atom and JSON Feed."""
