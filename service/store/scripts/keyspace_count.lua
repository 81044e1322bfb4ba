-- read-only
-- Run AcceptObject and count the subscriptions of channels.
-- KEYS: see keyspace_pages
-- ARGV: key, guess of its depth, prefixes of the channels' ids
-- Reply: {label of the leaf or the table, number of each channel's subscriptions in this keyspace, …}
-- include keyspace_accept
local reply = {answer(accepted(ARGV[1], ARGV[2]))}
for i, number in ipairs(redis.call('HMGET', KEYS[4], unpack(ARGV, 3))) do
  reply[i + 1] = tonumber(number or '0')
end
return reply
