"""Everything on one machine: a private Redis, a private Prosody, a sample publisher, and who keeps them up.

Rules of this room: what it starts listens only on loopback or on a socket in a 0700 directory;
every child has its own session and dies with its parent, even by kill -9; secrets reach children
as files (0600), never as arguments; what was chosen once (ports, passwords, certificates) stays in
the state directory, so that a second start continues the first.
"""
