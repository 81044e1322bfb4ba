-- read-only
-- Run AcceptObject and count the subscriptions of a channel.
-- KEYS: see keyspace_pages
-- ARGV: key, guess of its depth, prefix of the channel id
-- Reply: {label of the leaf or the table, number of the channel's subscriptions in this keyspace}
-- include keyspace_accept
return {answer(accepted(ARGV[1], ARGV[2])), tonumber(redis.call('HGET', KEYS[4], ARGV[3]) or '0')}
