-- The channel index agrees: drop the intent, and for a newly added subscription start at the channel's version.
-- KEYS user index, intents   ARGV channel id, intent, version to start at ('' keeps it)
if ARGV[3] ~= '' then
  local held = redis.call('HGET', KEYS[1], ARGV[1])
  if held then
    local number, seq, seen, since = string.match(held, '^(%S+) (%S+) (%S+) (%S+)$')
    if 'add ' .. seq == ARGV[2] and tonumber(seen) < tonumber(ARGV[3]) then
      redis.call('HSET', KEYS[1], ARGV[1], number .. ' ' .. seq .. ' ' .. ARGV[3] .. ' ' .. since)
    end
  end
end
if redis.call('HGET', KEYS[2], ARGV[1]) == ARGV[2] then
  redis.call('HDEL', KEYS[2], ARGV[1])
end
return redis.call('HLEN', KEYS[2])
