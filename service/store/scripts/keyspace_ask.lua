-- read-only
-- Run AcceptObject.
-- KEYS: see keyspace_pages
-- ARGV: key, guess of its depth
-- Reply: label of the leaf, or the table
-- include keyspace_accept
return answer(accepted(ARGV[1], ARGV[2]))
