-- Library: writes records to pages; a page with more than MOST records is split.
local FIRST = string.rep('\0', POSITION)

local function present(word)
  return word and string.byte(word, 4) % 2 == 0
end

-- Update the count of the channel, and the positions of tombstones, which are dropped when their leaf is complete.
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

-- Replace the word at a position by the result of `decide`, which gets the present word; nil is no record.
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

-- Store the newer of a record and the present one; a tombstone only where a move may still bring records.
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
