-- Queue what standing queries of one user have met in a version, once; nothing if they are subscribed to the channel,
-- which tells them the whole version. What only ended ones have met is left out as what none has.
-- While the user has paused everything, what is met is only counted. KEYS user index, outbox, watches, hits, user
-- ARGV channel id, version, now s, marks of the entries met (JSON), how many changes the version has, then of each
--      standing query its number, its words, and the positions that it has met (JSON).
-- Returns 1 queued, 0 not again or not needed, 2 only counted, -1 there are no such standing queries any more.
-- include user_held
local met, wanted = {}, {}
for i = 6, #ARGV, 3 do
  if redis.call('HEXISTS', KEYS[3], ARGV[i]) == 1 then
    local positions = cjson.decode(ARGV[i + 2])
    met[#met + 1] = {tonumber(ARGV[i]), ARGV[i + 1], positions}
    for _, position in ipairs(positions) do
      wanted[position] = true
    end
  end
end
if #met == 0 then
  return -1
end
local is_new = not held_of(KEYS[1], ARGV[1]) and redis.call('SADD', KEYS[4], ARGV[1] .. ' ' .. ARGV[2]) == 1
redis.call('EXPIRE', KEYS[4], 7 * 86400)
local is_silent = redis.call('HEXISTS', KEYS[5], 'unheard') == 1
if not is_new then
  return is_silent and 2 or 0
end
local marks, others = {}, {}
for _, article in ipairs(cjson.decode(ARGV[4])) do
  if wanted[article[1]] then
    marks[#marks + 1] = article
  end
end
for position = 0, ARGV[5] - 1 do
  if not wanted[position] then
    others[#others + 1] = position
  end
end
if is_silent then
  redis.call('HINCRBY', KEYS[5], 'unheard', ARGV[5] - #others)
  return 2
end
local function packed(list)
  return #list > 0 and cjson.encode(list) or '[]'
end
redis.call(
  'XADD', KEYS[2], '*', 'c', ARGV[1], 'v', ARGV[2], 't', ARGV[3], 'e', 0,
  'm', packed(marks), 'x', packed(others), 'w', packed(met)
)
return 1
