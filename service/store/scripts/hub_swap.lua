-- Change a channel's hub subscription if nobody else did meanwhile.
-- KEYS hub   ARGV state that it must have ('' for none), state from now on ('' removes). Returns 1 if it was changed.
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2])
end
return 1
