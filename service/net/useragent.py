"""How Coronet introduces itself to publishers."""

from importlib.metadata import version


def user_agent(operator_url: str) -> str:
    """Return ``Coronet/VERSION (+URL)``: who asks, and where to complain. The URL may be empty."""
    return f"Coronet/{version('coronet')} ({f'+{operator_url}' if operator_url else 'feed reader'})"
