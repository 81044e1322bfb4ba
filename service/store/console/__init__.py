"""The console's accounts, sessions, API keys, login limits, audit log, and stored responses."""
