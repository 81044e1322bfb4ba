-- The ring and its log, for the scripts of the ring.
-- KEYS: 1 nodes, 2 leases, 3 changes
-- A version is the time of the change in µs, or, if the clock has not moved on, the number after the last version. So
-- no version is given twice, not even if Redis loses changes, and versions are also the epochs of nodes that join.
local MOST_CHANGES = 1000
-- include clock
local function version()
  local last = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)[1]
  return last and tonumber(string.match(last[1], '^%d+')) or 0
end
-- known: a version that the new one has to exceed, besides those in the log
local function log_change(ids, known)
  local next = math.max(version() + 1, (known or 0) + 1, time[1] * 1000000 + time[2])
  redis.call('XADD', KEYS[3], 'MAXLEN', MOST_CHANGES, string.format('%.0f-0', next), 'n', table.concat(ids, ' '))
  return next
end
