-- The pages of a keyspace's subscriptions: sorted runs of records of 28 bytes, a position (key 4, channel 8, user 12) and
-- a word (4: twice the seq, and 1 more for an end). So the greater word is the newer, and an end counts before the
-- beginning of the same seq. KEYS table, pages, records, channels, ends
local PAGES, RECORDS, CHANNELS, ENDS = unpack(KEYS, 2)
local RECORD, POSITION, MOST = 28, 24, 128
local NUMBERS = '>I6I6I6I6'

-- The page that a position is in, by where it begins; nil before all pages.
local function page_of(position)
  return redis.call('ZREVRANGEBYLEX', PAGES, '[' .. position, '-', 'LIMIT', 0, 1)[1]
end

-- How many records of a page come before a position. Lua's own order of strings is the locale's.
local function before(page, position)
  local a, b, c, d = struct.unpack(NUMBERS, position)
  local low, high = 0, #page / RECORD
  while low < high do
    local middle = math.floor((low + high) / 2)
    local e, f, g, h = struct.unpack(NUMBERS, page, middle * RECORD + 1)
    if e < a or e == a and (f < b or f == b and (g < c or g == c and h < d)) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Add to a reply whether more follows, and what lies between two positions: all, or more than `count` records.
local function add_range(reply, low, high, count)
  local most = math.floor(count / 32) + 2
  local starts = redis.call('ZRANGEBYLEX', PAGES, '(' .. low, '[' .. high, 'LIMIT', 0, most)
  local more, follows, records = #starts == most, #reply + 1, 0
  local first = page_of(low)
  if first then
    table.insert(starts, 1, first)
  end
  reply[follows] = 0
  for _, start in ipairs(starts) do
    if records > count then
      more = true
      break
    end
    local page = redis.call('HGET', RECORDS, start)
    local from, to = before(page, low) * RECORD, before(page, high) * RECORD
    if to > from then
      reply[#reply + 1] = string.sub(page, from + 1, to)
      records = records + (to - from) / RECORD
    end
  end
  reply[follows] = more and 1 or 0
  return records
end
