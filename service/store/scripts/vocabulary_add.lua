-- Add words to a shard of a vocabulary.
-- KEYS: 1 hash of the shard: word → hour in which it was last added (Unix time in hours)
-- ARGV: 1 maximum number of words, 2 time after which a word expires (s), words
-- Reply: those of the words that are new
-- The words that were added least recently are removed if there are too many; expired ones, now and then.
local now_h = math.floor(tonumber(redis.call('TIME')[1]) / 3600)
local most, life_h = tonumber(ARGV[1]), math.ceil(tonumber(ARGV[2]) / 3600)
local new = {}
for i = 3, #ARGV do
  if redis.call('HSET', KEYS[1], ARGV[i], now_h) == 1 then
    new[#new + 1] = ARGV[i]
  end
end
local surplus = redis.call('HLEN', KEYS[1]) - most
if surplus > 0 or math.random(16) == 1 then
  local held, oldest = redis.call('HGETALL', KEYS[1]), {}
  for i = 1, #held, 2 do
    oldest[#oldest + 1] = {tonumber(held[i + 1]), held[i]}
  end
  table.sort(oldest, function(one, other)
    return one[1] < other[1]
  end)
  for i, word in ipairs(oldest) do
    if i <= surplus or word[1] + life_h < now_h then
      redis.call('HDEL', KEYS[1], word[2])
    end
  end
end
redis.call('EXPIRE', KEYS[1], ARGV[2] + 3600)
return new
