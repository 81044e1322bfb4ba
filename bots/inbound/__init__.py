"""The intake of received messages: each message is stored before the bot answers it (guarantee I8)."""
