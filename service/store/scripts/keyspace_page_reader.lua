-- Library: reads the pages of a keyspace, which are sorted runs of records. A record has 28 bytes, big-endian: a
-- position (key 4, channel 8, user 12) and a word (4: twice the seq, plus 1 for a tombstone). The greater word is the
-- newer; a tombstone is newer than a subscription of the same seq.
-- KEYS: table, pages, records, counts by channel, tombstones
local PAGES, RECORDS, CHANNELS, ENDS = unpack(KEYS, 2)
local RECORD, POSITION, MOST = 28, 24, 128
local NUMBERS = '>I6I6I6I6'

-- Return the first position of the page that contains a position; nil before the first page.
local function page_of(position)
  return redis.call('ZREVRANGEBYLEX', PAGES, '[' .. position, '-', 'LIMIT', 0, 1)[1]
end

-- Return the number of records of a page before a position. Numbers are compared, because Lua compares strings by
-- the locale.
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

-- Append to a reply: 1 if more records follow, and the records between two positions, all or more than `count`.
-- Return their number.
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
