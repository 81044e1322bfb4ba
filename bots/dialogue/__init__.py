"""Dialogues: functions that execute a command and return the reply. They send requests to the store and the workers.

This package does not use XMPP.
"""
