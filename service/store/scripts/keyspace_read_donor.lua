-- read-only
-- Read a page of what a move's donor has. KEYS see keyspace_pages   ARGV first and last position, count
-- Returns {table, whether more follows, records, …}.
-- include keyspace_pages
local reply = {redis.call('HGETALL', KEYS[1])}
add_range(reply, ARGV[1], ARGV[2], tonumber(ARGV[3]))
return reply
