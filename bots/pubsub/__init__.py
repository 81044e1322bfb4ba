"""Public channels as nodes of a publish-subscribe service (XEP-0060), with Atom entries as items (XEP-0472)."""
