"""Forecast of what the control plane of a fleet of any size costs: messages, Redis commands, memory, time to heal."""
