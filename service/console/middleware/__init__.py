"""Middleware and decorators of handlers: error responses, audit log, idempotency, limits and metrics of requests."""
