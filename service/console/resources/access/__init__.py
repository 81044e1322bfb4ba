"""Resources for access: accounts, sessions, API keys, and the audit log."""
