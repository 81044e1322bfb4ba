"""``coronet doctor``: checks of Redis, programs, the XMPP login and this machine, with advice for each problem."""
