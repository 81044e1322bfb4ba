"""Dialogues: execute a command by requests to the store and workers, and return the reply. No XMPP here."""
