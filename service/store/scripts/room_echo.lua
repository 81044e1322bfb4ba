-- Remember how a room calls a message of ours, once. KEYS the room's echoes   ARGV both ids (msgpack), how many are kept.
redis.call('LREM', KEYS[1], 0, ARGV[1])
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('LTRIM', KEYS[1], -ARGV[2], -1)
redis.call('EXPIRE', KEYS[1], 30 * 86400)
