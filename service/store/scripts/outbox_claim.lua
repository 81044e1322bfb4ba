-- Move the oldest items of an outbox, all news, all edits or all announcements, into a batch in flight. The first
-- item's id determines the message id. Articles that another channel has delivered to this user are omitted here, in
-- the last step before sending. The marks of delivered articles are kept for 15 to 30 days, in two generations of about
-- 500. Suppressed changes are omitted first and do not count as delivered. For a suspended user all items are dropped.
-- Items for later stay in the outbox. For channels with a delivery interval the time of delivery is recorded.
-- KEYS: 1 outbox, 2 in flight, 3 article marks, 4 older article marks, 5 restrictions, 6 last sent times
-- ARGV: 1 user id, 2 maximum number of items, 3 now (Unix s), and optionally: 4 last item to consider, 5 channels with
--   a delivery interval (separated by spaces), 6 how long their times are kept in s, 7 suppressions by item id (JSON):
--   positions of changes, null for the item, 'later' to keep it, 8 item after which to begin, or ''
-- Reply: {batch as JSON, number of items left}; without items the number of batches in flight, or -1 if items are left
if redis.call('HGET', KEYS[5], 'suspended') then
  redis.call('DEL', KEYS[1])
  return redis.call('HLEN', KEYS[2])
end
local LIFE_S = 30 * 86400
local ttl_s = redis.call('TTL', KEYS[3])
if ttl_s >= 0 and (ttl_s < LIFE_S / 2 or redis.call('HLEN', KEYS[3]) >= 500) then
  redis.call('RENAME', KEYS[3], KEYS[4])
end

-- Record the articles ({position, own mark, mark, …} each) as delivered by the channel; return the positions of those
-- that another channel has delivered. The own mark is recorded only for omitted articles, so that their edits are
-- omitted, too.
local function find_duplicates(channel, articles, news)
  local positions = {}
  for _, article in ipairs(articles) do
    local fresh, deliverer = {}, channel
    for i = 2, #article do
      local known = redis.call('HGET', KEYS[3], article[i]) or redis.call('HGET', KEYS[4], article[i])
      if not known then
        fresh[#fresh + 1] = i
      elseif known ~= channel and (news or i == 2) then
        deliverer = known
      end
    end
    for _, i in ipairs(fresh) do
      if i > 2 or deliverer ~= channel then
        redis.call('HSET', KEYS[3], article[i], deliverer)
      end
    end
    if deliverer ~= channel then
      positions[#positions + 1] = article[1]
    end
  end
  if redis.call('TTL', KEYS[3]) == -1 then
    redis.call('EXPIRE', KEYS[3], LIFE_S)
  end
  return positions
end

local withheld = cjson.decode(ARGV[7] or '{}')
for item, positions in pairs(withheld) do
  if positions == cjson.null then
    redis.call('XDEL', KEYS[1], item)
  end
end

-- Return the oldest items that may be delivered now.
local function free_items()
  local free, from = {}, (ARGV[8] or '') == '' and '-' or '(' .. ARGV[8]
  repeat
    local found = redis.call('XRANGE', KEYS[1], from, ARGV[4] or '+', 'COUNT', ARGV[2])
    for _, item in ipairs(found) do
      from = '(' .. item[1]
      if withheld[item[1]] ~= 'later' and #free < tonumber(ARGV[2]) then
        free[#free + 1] = item
      end
    end
  until #found == 0 or #free == tonumber(ARGV[2])
  return free
end

local items, message_id, has_content
repeat
  local found = free_items()
  if #found == 0 then
    return redis.call('XLEN', KEYS[1]) > 0 and -1 or redis.call('HLEN', KEYS[2])
  end
  items, message_id, has_content = {}, ARGV[1] .. '-' .. found[1][1], false
  local part
  for _, item in ipairs(found) do
    local field = {e = '0', m = '[]', x = '[]', w = '[]'}
    for i = 1, #item[2], 2 do
      field[item[2][i]] = item[2][i + 1]
    end
    part = part or field['e']
    if field['e'] ~= part then
      break
    end
    local suppressed, is_suppressed, articles = withheld[item[1]] or {}, {}, {}
    for _, position in ipairs(suppressed) do
      is_suppressed[position] = true
    end
    local all_articles = cjson.decode(field['m'])
    for _, article in ipairs(all_articles) do
      if not is_suppressed[article[1]] then
        articles[#articles + 1] = article
      end
    end
    local omitted = find_duplicates(string.sub(field['c'], 1, 8), articles, part == '0')
    has_content = has_content or #all_articles == 0 or #omitted < #articles
    for _, position in ipairs(suppressed) do
      omitted[#omitted + 1] = position
    end
    -- An item of saved searches may be a part of a version: its other changes were omitted when it was queued.
    for _, position in ipairs(cjson.decode(field['x'])) do
      omitted[#omitted + 1] = position
    end
    local queued = {field['c'], tonumber(field['v']), tonumber(field['t']), part == '1'}
    if #omitted > 0 then
      queued[5] = omitted -- cjson would encode an empty table as an object
    end
    if field['w'] ~= '[]' then
      queued[5] = queued[5] or cjson.null
      queued[6] = cjson.decode(field['w'])
    end
    if field['a'] then
      queued[5], queued[6], queued[7] = queued[5] or cjson.null, queued[6] or cjson.null, tonumber(field['a'])
    end
    items[#items + 1] = queued
    redis.call('XDEL', KEYS[1], item[1])
  end
until has_content
-- include clock
if (ARGV[5] or '') ~= '' then
  for _, item in ipairs(items) do
    if string.find(ARGV[5], item[1], 1, true) then
      redis.call('HSET', KEYS[6], item[1], now_ms)
      redis.call('EXPIRE', KEYS[6], ARGV[6])
    end
  end
end
local batch = cjson.encode({m = message_id, items = items, acked = false, at = tonumber(ARGV[3])})
redis.call('HSET', KEYS[2], message_id, batch)
return {batch, redis.call('XLEN', KEYS[1])}
