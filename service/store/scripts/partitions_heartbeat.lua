-- Heartbeat of a process that shares numbered partitions: renew its lease, release partitions, and take free ones up
-- to its fair share. Partitions of failed processes are not free until their work is recovered. A holder without a
-- lease is the result of a loss of data; its lease is set to end now.
-- KEYS: leases, partitions
-- ARGV: process, TTL in ms, number of partitions, numbers to release (separated by spaces)
-- Reply: {numbers of the process, fair share, {failed process, end of its lease in ms, …}, process that has to
--   recover them}
-- include clock
for number in string.gmatch(ARGV[4], '%S+') do
  if redis.call('HGET', KEYS[2], number) == ARGV[1] then
    redis.call('HDEL', KEYS[2], number)
  end
end
redis.call('ZADD', KEYS[1], now_ms + tonumber(ARGV[2]), ARGV[1])
local leased, living, dead = {}, {}, {}
local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  leased[all[i]] = true
  if tonumber(all[i + 1]) >= now_ms then
    living[#living + 1] = all[i]
  else
    dead[#dead + 1] = all[i]
    dead[#dead + 1] = all[i + 1]
  end
end
table.sort(living)
local most = math.ceil(tonumber(ARGV[3]) / #living)
local held, mine = {}, {}
local pairs_held = redis.call('HGETALL', KEYS[2])
for i = 1, #pairs_held, 2 do
  held[tonumber(pairs_held[i])] = true
  if pairs_held[i + 1] == ARGV[1] then
    mine[#mine + 1] = tonumber(pairs_held[i])
  end
  if not leased[pairs_held[i + 1]] then
    redis.call('ZADD', KEYS[1], now_ms, pairs_held[i + 1])
  end
end
for number = 0, tonumber(ARGV[3]) - 1 do
  if #mine < most and not held[number] then
    redis.call('HSET', KEYS[2], number, ARGV[1])
    mine[#mine + 1] = number
  end
end
return {mine, most, dead, living[1]}
