"""Authentication and authorisation of the console: accounts, sessions, roles and login."""
