"""The resources of the console, grouped as the scopes of API keys: each module has pages and API operations."""
