"""The intake of received messages, which stores each one before it is answered (see docs/guarantees.md)."""
