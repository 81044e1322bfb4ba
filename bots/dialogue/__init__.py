"""Dialogues: functions that execute a command by requests to the store and workers, and return the reply.

This package does not use XMPP.
"""
