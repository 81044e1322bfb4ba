-- Add events to the decayed counts of cells.
-- KEYS: 1 load of a directory's matrices
-- ARGV: 1 time constant (ms), 2 maximum number of cells, then for each cell: field, queries, registrations, number of
--   names ('' if unknown)
-- Reply: number of cells that were counted
-- A field has 'QUERIES REGISTRATIONS NAMES AT': the counts as decayed until the time AT (ms), and the last known number
-- of names. Counts that have reached a steady state are rates times the time constant.
local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
local free = tonumber(ARGV[2]) - redis.call('HLEN', KEYS[1])
local counted = 0
for i = 3, #ARGV, 4 do
  local held = redis.call('HGET', KEYS[1], ARGV[i])
  local queries, registrations, names, at_ms = string.match(held or '', '^(%S+) (%S+) (%S+) (%S+)$')
  if at_ms or free > 0 then
    local left = at_ms and math.exp(-math.max(0, now_ms - at_ms) / ARGV[1]) or 0
    queries = (queries or 0) * left + ARGV[i + 1]
    registrations = (registrations or 0) * left + ARGV[i + 2]
    names = ARGV[i + 3] ~= '' and ARGV[i + 3] or names or 0
    redis.call('HSET', KEYS[1], ARGV[i], string.format('%.2f %.2f %d %d', queries, registrations, names, now_ms))
    free, counted = free - (at_ms and 0 or 1), counted + 1
  end
end
redis.call('PEXPIRE', KEYS[1], 600000)
return counted
