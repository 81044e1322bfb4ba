"""The JSON API: the declaration of operations, the OpenAPI document, and the reference page."""
