-- Queue the matches of a user's saved searches in a version, once. Nothing is queued for a subscriber of the channel,
-- who gets the whole version. Changes that only removed searches match are omitted. While the user's saved searches
-- are paused, matches are counted only.
-- KEYS: user index, outbox, saved searches, hits, user, webhook, its queue
-- ARGV: channel id, version, now (Unix s), marks of the matching entries (JSON), number of changes in the version,
--   then number, text and matching positions (JSON) of each saved search
-- Reply: 1 queued, 0 queued before or not needed, 2 counted only, -1 none of the saved searches exists
-- include user_index
-- include webhook_queue
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
queue_for_webhook(
  KEYS[6], KEYS[7], 'c', ARGV[1], 'v', ARGV[2], 't', ARGV[3], 'e', 0, 'x', packed(others), 'w', packed(met)
)
return 1
