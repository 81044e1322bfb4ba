"""Forecast of the costs of coordinating a fleet of any size: messages, Redis commands, memory, and time to heal."""
