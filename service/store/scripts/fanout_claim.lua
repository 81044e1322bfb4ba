-- Claim a unit of a channel's fan-out that no worker has claimed, or whose claim has expired. Redis's time of the claim
-- is its token: a unit has no two claims of the same time. A claim whose end is too far in the future was made when the
-- clock was wrong, and counts as expired.
-- KEYS: channel, units
-- ARGV: value of the channel's field cursor for a divided fan-out, length of a claim (ms), version, or '' for any
-- Reply: {users in all pages so far, ms until the first claim expires (0 if all units are finished)}, or {version,
--   units that are not finished, label, token, cursor} of a claimed unit; nil if no divided fan-out of that version is
--   in progress
local found = redis.call('HMGET', KEYS[1], 'cursor', 'fanned')
local units, version, queued = {}, nil, nil
local all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do
  if all[i] == 'version' then
    version = all[i + 1]
  elseif all[i] == 'queued' then
    queued = all[i + 1]
  else
    units[#units + 1] = {all[i], all[i + 1]}
  end
end
if found[1] ~= ARGV[1] or not version or tonumber(version) ~= tonumber(found[2] or '0') + 1 then
  return false
end
if ARGV[3] ~= '' and ARGV[3] ~= version then
  return false
end
-- include clock
local wait = 0
for _, unit in ipairs(units) do
  local ends, _, cursor = string.match(unit[2], '^(%S+) (%S+) (%S*)$')
  local left = tonumber(ends) - now_ms
  if left <= 0 or left > tonumber(ARGV[2]) then
    local token = time[1] .. '.' .. time[2]
    redis.call('HSET', KEYS[2], unit[1], string.format('%.0f %s %s', now_ms + ARGV[2], token, cursor))
    return {tonumber(version), #units, unit[1], token, cursor}
  end
  wait = wait == 0 and left or math.min(wait, left)
end
return {tonumber(queued), wait}
