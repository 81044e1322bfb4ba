"""Middleware and decorators for handlers: error responses, audit log, idempotency, limits and request metrics."""
