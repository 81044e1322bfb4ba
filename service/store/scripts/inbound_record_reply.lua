-- Store the reply to a message before it is sent, unless the message was removed meanwhile.
-- KEYS: messages, replies
-- ARGV: entry id of the message, stanzas (JSON)
if #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then
  return
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], 86400)
