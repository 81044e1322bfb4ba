"""Logging, metrics and tracing of all processes."""
