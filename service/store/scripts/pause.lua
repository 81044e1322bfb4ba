-- Note that a channel's publisher wants to be left alone, unless admins want that anyway.
-- KEYS pause   ARGV for so many ms
if redis.call('GET', KEYS[1]) ~= 'admin' then
  redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
end
