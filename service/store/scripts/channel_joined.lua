-- Note that somebody is among a channel's subscribers from now on. KEYS channel. Returns 0 if there is no such channel.
if redis.call('HEXISTS', KEYS[1], 'url') == 0 then
  return 0
end
redis.call('HINCRBY', KEYS[1], 'joins', 1)
return 1
