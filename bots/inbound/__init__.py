"""Received messages: stored before they are answered, so that each is answered once (see docs/guarantees.md)."""
