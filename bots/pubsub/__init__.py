"""Publishes public channels as nodes of a publish-subscribe service (XEP-0060); items are Atom entries (XEP-0472)."""
