-- read-only
-- KEYS table, pages, records, channels, …   ARGV key, guess, channel
-- Returns {answer, how many of the channel's subscriptions are in this keyspace}.
-- include keyspace_accept
return {answer(accepted(ARGV[1], ARGV[2])), tonumber(redis.call('HGET', KEYS[4], ARGV[3]) or '0')}
