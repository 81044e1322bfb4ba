"""Authentication and authorization of the console: accounts, passwords, permissions, login, and CSRF protection."""
