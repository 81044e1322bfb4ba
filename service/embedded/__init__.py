"""Coronet on a single machine: a private Redis and Prosody, a sample publisher, and the supervisor of all programs.

Rules of this package: its servers listen only on loopback or on a Unix socket in a 0700 directory. Every child process
runs in its own session and dies with its parent, even after kill -9. Children get secrets as files (0600), never as
arguments. Ports, passwords and certificates persist in the state directory, so that the next start reuses them.
"""
