"""The console's accounts, sessions and audit log."""
