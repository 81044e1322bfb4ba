"""Coronet on a single machine: a private Redis and Prosody, a sample publisher, and the supervisor of all programs.

Rules of this package: its servers listen only on loopback or on a Unix socket in a 0700 directory; every child runs in
its own session and dies with its parent, even after kill -9; children get secrets as files (0600), never as arguments;
ports, passwords and certificates persist in the state directory, so that the next start reuses them.
"""
