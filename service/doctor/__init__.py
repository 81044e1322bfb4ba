"""``coronet doctor``: looks at everything a running Coronet needs, and says what to do.

Each check is one question, answered by a :class:`Finding`; no check disturbs what is running, and
none takes longer than a few seconds. What a check cannot reach is its answer, never an exception.
"""
