"""Coronet on a single machine: a private Redis and Prosody, a sample publisher, and the supervisor of all programs.

Rules of this package:

- Servers listen only on loopback or on a Unix socket in a directory with mode 0700.
- Every child process runs in its own session. It dies with its parent, even if the parent is killed with SIGKILL.
- Child processes get secrets in files with mode 0600, never as arguments.
- Ports, passwords and certificates are kept in the state directory, so that the next start reuses them.
"""
