"""Webhooks of users: requests that tell other programs about new entries, and their delivery."""
