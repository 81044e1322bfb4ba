"""The console's resources. Each module contains one resource's pages and API operations.

The packages group the resources by the areas to which API scopes apply.
"""
