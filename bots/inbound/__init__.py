"""The intake of received messages, which stores each message before it is answered (guarantee I8)."""
