"""Reaching publishers: the only room that connects to them.

Rules of this room: it holds no policy (when to fetch, how often, what to do with an answer); it
fetches one URL within hard caps, and connects only where the guard allows. Every connection,
including those of redirects and of IP literals, passes the guard at the moment its socket is
made, when the very address is known: a check of the name before that can be bypassed by DNS
rebinding, a check in the resolver by literals.

``fetch`` asks, ``guard`` allows, ``answer`` reads within the caps, ``encoding`` decompresses, ``failures`` says in
words what went wrong, ``sites`` who is asked.
``uploads`` is for what is no publisher: files on XMPP servers.
"""
