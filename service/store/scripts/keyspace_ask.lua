-- read-only
-- KEYS table, …   ARGV key, guess. Returns the answer.
-- include keyspace_accept
return answer(accepted(ARGV[1], ARGV[2]))
