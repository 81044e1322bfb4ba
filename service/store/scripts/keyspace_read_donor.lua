-- read-only
-- Read a page of the records that a donor still has.
-- KEYS: see keyspace_pages
-- ARGV: first and last position, maximum number of records
-- Reply: {table, 1 if more records follow, records, …}
-- include keyspace_page_reader
local reply = {redis.call('HGETALL', KEYS[1])}
add_range(reply, ARGV[1], ARGV[2], tonumber(ARGV[3]))
return reply
