-- Record the id that a group chat gave to a message of the bot, once.
-- KEYS: message ids of the group chat
-- ARGV: both ids (msgpack), maximum number of messages
redis.call('LREM', KEYS[1], 0, ARGV[1])
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], -ARGV[2], -1)
redis.call('EXPIRE', KEYS[1], 30 * 86400)
