"""Authentication and authorization of the console: accounts, passwords, roles, login, and the middleware."""
