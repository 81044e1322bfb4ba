"""``coronet doctor``: checks Redis, programs, the XMPP login and this machine, and gives advice on each problem."""
