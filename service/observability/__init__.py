"""Logging, metrics and tracing for all processes."""
