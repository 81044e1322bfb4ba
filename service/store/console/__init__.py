"""The console's data: accounts, sessions, API keys, login limits, audit log, and stored responses."""
