-- Pause all requests to a site at its publisher's request. A pause that ends later remains. If the request states no
-- duration, the pause is twice as long as the last one. The site's token bucket is empty at the end of the pause.
-- KEYS: pause, bucket
-- ARGV: duration in ms (0: not stated), time for which a pause is kept after its end (ms), shortest and longest
--   duration (ms)
-- Reply: ms until the pause ends
local kept_ms, shortest_ms, longest_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local left_ms = redis.call('PTTL', KEYS[1]) - kept_ms
local for_ms = tonumber(ARGV[1])
if for_ms == 0 then
  if left_ms > 0 then -- the request was under way when the pause began
    return left_ms
  end
  for_ms = 2 * tonumber(redis.call('GET', KEYS[1]) or 0)
end
for_ms = math.min(longest_ms, math.max(shortest_ms, for_ms))
if for_ms <= left_ms then
  return left_ms
end
-- include clock
redis.call('SET', KEYS[1], string.format('%d', for_ms), 'PX', string.format('%d', for_ms + kept_ms))
redis.call('HSET', KEYS[2], 'tokens', '0', 'at_ms', string.format('%d', now_ms + for_ms))
redis.call('PEXPIRE', KEYS[2], string.format('%d', for_ms + kept_ms))
return for_ms
