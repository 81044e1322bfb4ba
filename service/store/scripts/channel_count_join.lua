-- Count a new subscriber of a channel.
-- KEYS: channel
-- Reply: 1, or 0 if the channel does not exist
if redis.call('HEXISTS', KEYS[1], 'url') == 0 then
  return 0
end
redis.call('HINCRBY', KEYS[1], 'joins', 1)
return 1
