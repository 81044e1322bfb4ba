"""Operator tasks that the command line and the console share."""
