-- Pause subscriptions of a user and withhold their queued items. Batches in flight are sent, unless the pause is
-- automatic, because messages do not reach the user; then they are withheld, too.
-- KEYS: user index, outbox, user, in flight
-- ARGV: '*' for an automatic pause or '', '1' to pause saved searches, too, then channel ids
-- Reply: ids of channels that were not paused before
-- include user_index
local versions, paused = {}, {}
for i = 3, #ARGV do
  local held = held_of(KEYS[1], ARGV[i])
  if held then
    local _, _, seen, _, since = fields_of(held)
    if since == '' then
      versions[ARGV[i]] = tonumber(seen)
      paused[#paused + 1] = ARGV[i]
    elseif ARGV[1] == '' and string.find(since, '%*$') then
      redis.call('HSET', KEYS[1], place(ARGV[i]), string.sub(held, 1, -2))
    end
  end
end
for _, item in ipairs(redis.call('XRANGE', KEYS[2], '-', '+')) do
  local field = {}
  for i = 1, #item[2], 2 do
    field[item[2][i]] = item[2][i + 1]
  end
  if versions[field['c']] and not field['w'] then
    versions[field['c']] = math.min(versions[field['c']], tonumber(field['a'] or field['v'] - 1))
    redis.call('XDEL', KEYS[2], item[1])
  end
end
for _, flying in ipairs(ARGV[1] == '*' and redis.call('HVALS', KEYS[4]) or {}) do
  for _, item in ipairs(cjson.decode(flying)['items']) do
    local cid, version, edits, met, after = item[1], item[2], item[4], item[6], item[7]
    if versions[cid] and not edits and (met or cjson.null) == cjson.null then
      versions[cid] = math.min(versions[cid], after or version - 1)
    end
  end
end
for cid, version in pairs(versions) do
  redis.call('HSET', KEYS[1], place(cid), held_of(KEYS[1], cid) .. ' ' .. version .. ARGV[1])
end
if ARGV[2] == '1' then
  redis.call('HSETNX', KEYS[3], 'unheard', 0)
end
return paused
