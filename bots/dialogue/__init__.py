"""Dialogues: from a command to requests, and from their results to a reply. No XMPP here."""
