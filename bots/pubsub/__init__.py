"""Public channels as nodes of a pubsub service (XEP-0060, XEP-0472)."""
