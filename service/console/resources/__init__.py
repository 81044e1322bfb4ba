"""The resources of the console, each a module with pages and API operations, in one package for each area of scopes."""
