"""Received messages: stored before they are answered, and answered once."""
