"""Users' preferences per subscription, and when they want to receive messages. Pure."""
