"""Forecast of what it costs to coordinate a fleet of any size: messages, Redis commands, memory, and time to heal."""
