-- What happens in one keyspace in one instant; ARGV[1] says what. Its subscriptions lie in pages: sorted runs of records
-- of 28 bytes, a position (key 4, channel 8, user 12) and a word (4: twice the seq, and 1 more for an end). So the
-- greater word is the newer, and an end counts before the beginning of the same seq.
-- KEYS table, pages, records, channels, ends
local TABLE, PAGES, RECORDS, CHANNELS, ENDS = unpack(KEYS)
local RECORD, POSITION, MOST = 28, 24, 128
local FIRST = string.rep('\0', POSITION)
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

local function present(word)
  return word and string.byte(word, 4) % 2 == 0
end

-- Count what is present, and note where ends lie, which go when their leaf is filled.
local function account(position, held, word)
  local change = (present(word) and 1 or 0) - (present(held) and 1 or 0)
  local channel = string.sub(position, 5, 12)
  if change ~= 0 and redis.call('HINCRBY', CHANNELS, channel, change) == 0 then
    redis.call('HDEL', CHANNELS, channel)
  end
  if word and not present(word) then
    redis.call('ZADD', ENDS, 0, position)
  elseif held and not present(held) then
    redis.call('ZREM', ENDS, position)
  end
end

local function store(start, page, is_new)
  if page == '' then
    redis.call('HDEL', RECORDS, start)
    redis.call('ZREM', PAGES, start)
    return
  end
  if #page > MOST * RECORD then
    local middle = math.floor(#page / RECORD / 2) * RECORD
    store(string.sub(page, middle + 1, middle + POSITION), string.sub(page, middle + 1), true)
    page = string.sub(page, 1, middle)
  end
  redis.call('HSET', RECORDS, start, page)
  if is_new then
    redis.call('ZADD', PAGES, 0, start)
  end
end

-- Put in a position's place what `decide` makes of the word that it holds; nil is nothing.
local function replace(position, decide)
  local start = page_of(position) or FIRST
  local page = redis.call('HGET', RECORDS, start) or ''
  local at = before(page, position) * RECORD
  local held = nil
  if string.sub(page, at + 1, at + POSITION) == position then
    held = string.sub(page, at + POSITION + 1, at + RECORD)
  end
  local word = decide(held)
  if word == held then
    return
  end
  account(position, held, word)
  local record = word and position .. word or ''
  local rest = string.sub(page, at + 1 + (held and RECORD or 0))
  store(start, string.sub(page, 1, at) .. record .. rest, page == '')
end

-- Keep the newer of a record and of what is there; an end only where records may yet arrive.
local function keep(record, arriving)
  local word = string.sub(record, POSITION + 1)
  replace(string.sub(record, 1, POSITION), function(held)
    local latest = word
    if held and struct.unpack('>I4', held) > struct.unpack('>I4', word) then
      latest = held
    end
    return (arriving or present(latest)) and latest or nil
  end)
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

local function size(low, high)
  local first, total = page_of(low), 0
  local starts = redis.call('ZRANGEBYLEX', PAGES, first and '[' .. first or '-', '[' .. high)
  for i, start in ipairs(starts) do
    if i == 1 or i == #starts then
      local page = redis.call('HGET', RECORDS, start)
      total = total + before(page, high) - before(page, low)
    else
      total = total + redis.call('HSTRLEN', RECORDS, start) / RECORD
    end
  end
  return total
end

-- AcceptObject: the label of the key's leaf and its standing, or nothing. `bits` is the key in 0s and 1s.
local function accepted(bits)
  local labels = {bits}
  for depth = #bits - 1, 0, -1 do
    labels[#labels + 1] = string.sub(bits, 1, depth) .. '*'
  end
  local found = redis.call('HMGET', TABLE, 'version', 'bits', unpack(labels))
  if found[1] ~= '1' or found[2] ~= tostring(#bits) then
    return nil
  end
  for place, label in ipairs(labels) do
    local standing = found[place + 2] and string.match(found[place + 2], '^%a+')
    if standing == 'active' or standing == 'arriving' or standing == 'returning' then
      return label, standing
    end
  end
end

-- A leaf at rest is told by its label; in every other case the table has the answer.
local function answer(label, standing)
  return standing == 'active' and label or redis.call('HGETALL', TABLE)
end

local function is_as_read(expected)
  local found, fields = redis.call('HGETALL', TABLE), 0
  for _ in pairs(expected) do
    fields = fields + 1
  end
  for i = 1, #found, 2 do
    if expected[found[i]] ~= found[i + 1] then
      return false
    end
  end
  return #found == 2 * fields
end

local doing = {}

-- key. Returns {answer}
function doing.ask(bits)
  return {answer(accepted(bits))}
end

-- key, record. Returns {answer}
function doing.write(bits, record)
  local label, standing = accepted(bits)
  if label then
    keep(record, standing ~= 'active')
  end
  return {answer(label, standing)}
end

-- key, channel. Returns {answer, how many of the channel's subscriptions are in this keyspace}
function doing.count(bits, channel)
  return {answer(accepted(bits)), tonumber(redis.call('HGET', CHANNELS, channel) or '0')}
end

-- key, first and last position under the prefix, count. Returns {answer, whether more follows, records, …}
function doing.read(bits, low, high, count)
  local label, standing = accepted(bits)
  local reply = {answer(label, standing)}
  if label then
    local prefix = string.gsub(label, '%*', '')
    local last = struct.pack('>I4', tonumber(prefix .. string.rep('1', #bits - #prefix), 2))
    if struct.unpack('>I4', last) < struct.unpack('>I4', high) then
      high = last .. string.rep('\255', POSITION - 4)
    end
    add_range(reply, low, high, tonumber(count))
  end
  return reply
end

-- first and last position, count. Returns {table, whether more follows, records, …}
function doing.read_donor(low, high, count)
  local reply = {redis.call('HGETALL', TABLE)}
  add_range(reply, low, high, tonumber(count))
  return reply
end

-- first and last position, … Returns how many subscriptions lie between each two
function doing.sizes(...)
  local bounds, sizes = {...}, {}
  for i = 1, #bounds, 2 do
    sizes[#sizes + 1] = size(bounds[i], bounds[i + 1])
  end
  return sizes
end

local function change_table(changes)
  for field, text in pairs(changes.set) do
    redis.call('HSET', TABLE, field, text)
  end
  for _, field in ipairs(changes.drop) do
    redis.call('HDEL', TABLE, field)
  end
end

-- table as it was read and changes of it (JSON). Returns {1}; {0} if the table is another by now, and nothing is done
function doing.change(changes)
  changes = cjson.decode(changes)
  if not is_as_read(changes.read) then
    return {0}
  end
  change_table(changes)
  return {1}
end

-- the same, first and last position of a leaf that is filled, count. Returns {1, how many of its ends were dropped}
function doing.filled(changes, low, high, count)
  local done = doing.change(changes)
  if done[1] == 1 then
    local ends = redis.call('ZRANGEBYLEX', ENDS, '[' .. low, '[' .. high, 'LIMIT', 0, count)
    for _, position in ipairs(ends) do
      replace(position, function() end)
    end
    done[2] = #ends
  end
  return done
end

-- table as it was read, records (joined). Returns {1} or {0}
function doing.put(changes, records)
  local done = doing.change(changes)
  if done[1] == 1 then
    for at = 1, #records, RECORD do
      keep(string.sub(records, at, at + RECORD - 1), true)
    end
  end
  return done
end

-- table as it was read and changes for when nothing is left, positions to drop (joined), first and last position,
-- count. Returns {1, whether more follows, records, …} or {0}
function doing.fetch(changes, dropped, low, high, count)
  changes = cjson.decode(changes)
  if not is_as_read(changes.read) then
    return {0}
  end
  for at = 1, #dropped, POSITION do
    replace(string.sub(dropped, at, at + POSITION - 1), function() end)
  end
  local reply = {1}
  if add_range(reply, low, high, tonumber(count)) == 0 then
    change_table(changes)
  end
  return reply
end

return doing[ARGV[1]](unpack(ARGV, 2))
