-- Note what is going to be answered, so that nobody has to find the answer again; not of what is answered or forgotten.
-- KEYS heard, answers   ARGV place, answers (JSON)
if #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], 86400)
return 1
