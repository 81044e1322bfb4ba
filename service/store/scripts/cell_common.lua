-- A cell of a matrix: names with their records, and an index of bit-sliced signatures.
-- KEYS: cell, names, index, slots
-- ARGV: 1 digest (8 bytes) of the cell's own pair, further ones by script
-- names: hash, name → record: slot (3 bytes), version (6), expiry in ms (6), digest of each pair (8 each). A record
-- without pairs is a withdrawn name.
-- index: string, a matrix of ROWS rows with one bit per slot. A cell with more than INDEXED_FROM records has it. Each
-- pair has two rows, by its digest; the bit of a name's slot is set in both rows of each of its pairs. The
-- conjunction of the rows of several pairs, about 500 bytes each for 4,000 names, contains all names that have all of
-- the pairs, and a few others, which the records rule out.
-- slots: string, the name of each slot, padded with zeros to WIDTH bytes.
local CELL, NAMES, INDEX, SLOTS = unpack(KEYS)
local OWN = ARGV[1]
local INDEXED_FROM, ROWS, LEAST_BITS, WIDTH, HEAD = 64, 512, 128, 64, 15
local WINDOW = 20
local LIFE_MS, SLACK_MS = 86400000, 300000
local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Return the fields of the cell: m membership, x record of the matrix, n number of names, w and q windows of
-- registrations and queries (see counted), bits of each row, h number of slots ever used, f free slots, u expiry of the
-- keys (ms), c cursor of the sweep. Scripts set `fresh` when they create a key, which does not expire yet.
local function look()
  local found = redis.call('HMGET', CELL, 'm', 'n', 'w', 'q', 'x', 'bits', 'h', 'f', 'u', 'c')
  return {m = found[1], n = tonumber(found[2] or 0), w = found[3] or '', q = found[4] or '', x = found[5],
    bits = tonumber(found[6] or 0), h = tonumber(found[7] or 0), f = found[8] or '', u = tonumber(found[9] or 0),
    c = found[10] or '0'}
end

-- Return the reply of all scripts: {membership, matrix, number of names, w, q, now in ms, 1 if done, further results}.
local function answer(cell, done, ...)
  return {cell.m, cell.x, cell.n, cell.w, cell.q, string.format('%d', now_ms), done and 1 or 0, ...}
end

-- Count events in a window 'COUNT BEGAN LAST_COUNT LAST_BEGAN'; windows are consecutive and last at least a second, so
-- that a batch is not a rate. Return the window, and true if it is a new one.
local function counted(window, events)
  local count, began, last, before = string.match(window, '^(%d+) (%d+) (%d+) (%d+)$')
  if not began then
    return string.format('%d %d 0 0', events, now_ms)
  end
  count = count + events
  if count >= WINDOW and now_ms - began >= 1000 then
    return string.format('0 %d %d %s', now_ms, count, began), true
  end
  return string.format('%d %s %s %s', count, began, last, before)
end

local function kept_until(cell, until_ms)
  if cell.fresh or until_ms + SLACK_MS > cell.u then
    cell.u = math.max(cell.u, until_ms + 2 * SLACK_MS)
    redis.call('HSET', CELL, 'u', string.format('%d', cell.u))
    local at = string.format('%d', cell.u)
    for i = 1, cell.bits > 0 and 4 or 2 do
      redis.call('PEXPIREAT', KEYS[i], at)
    end
  end
end

local function has(record, digest)
  local at = string.find(record, digest, HEAD + 1, true)
  while at and (at - HEAD - 1) % 8 ~= 0 do
    at = string.find(record, digest, at + 1, true)
  end
  return at
end

local function rows_of(digest)
  local a, b, c, d = string.byte(digest, 1, 4)
  return (a * 256 + b) % ROWS, (c * 256 + d) % ROWS
end

-- Collected arguments of BITFIELD: one command for many bits is much cheaper. Numbers are formatted here, because Redis
-- would convert them with 17 digits.
local steps, waiting = {}, 0
local function send_marks()
  if waiting > 0 then
    redis.call('BITFIELD', INDEX, unpack(steps, 1, waiting))
    waiting = 0
  end
end

-- Set or clear the bits of a record's pairs. Clearing may clear bits of other pairs of the record: they are set again.
local function mark(cell, record, slot, bit)
  local bits, n = cell.bits, waiting
  for at = HEAD + 1, #record, 8 do
    if string.sub(record, at, at + 7) ~= OWN then
      local a, b, c, d = string.byte(record, at, at + 3)
      steps[n + 1], steps[n + 2], steps[n + 4] = 'SET', 'u1', bit
      steps[n + 3] = string.format('%d', (a * 256 + b) % ROWS * bits + slot)
      steps[n + 5], steps[n + 6], steps[n + 8] = 'SET', 'u1', bit
      steps[n + 7] = string.format('%d', (c * 256 + d) % ROWS * bits + slot)
      n = n + 8
    end
  end
  waiting = n
  if n > 4000 then
    send_marks()
  end
end

local function widen(cell)
  send_marks()
  local rows, bytes = {}, cell.bits / 8
  local room = string.rep('\0', bytes)
  for row = 0, ROWS - 1 do
    rows[row + 1] = redis.call('GETRANGE', INDEX, row * bytes, (row + 1) * bytes - 1) .. room
  end
  redis.call('SET', INDEX, table.concat(rows))
  cell.bits, cell.fresh = cell.bits * 2, true
end

local function take_slot(cell, name)
  local slot
  if #cell.f > 0 then
    slot = struct.unpack('>I3', cell.f, #cell.f - 2)
    cell.f = string.sub(cell.f, 1, -4)
  else
    slot = cell.h
    cell.h = cell.h + 1
    if cell.h > cell.bits then
      widen(cell)
    end
  end
  redis.call('SETRANGE', SLOTS, slot * WIDTH, name .. string.rep('\0', WIDTH - #name))
  return slot
end

local function build_index(cell)
  cell.bits, cell.h, cell.f, cell.fresh = LEAST_BITS, 0, '', true
  redis.call('SET', INDEX, string.rep('\0', ROWS * LEAST_BITS / 8))
  local held = redis.call('HGETALL', NAMES)
  for i = 1, #held, 2 do
    local slot = take_slot(cell, held[i])
    redis.call('HSET', NAMES, held[i], struct.pack('>I3', slot) .. string.sub(held[i + 1], 4))
    mark(cell, held[i + 1], slot, '1')
  end
end

-- Store a record in place of `before`, which is nil or false for none.
local function keep(cell, name, before, record)
  local slot
  if cell.bits > 0 then
    if before then
      slot = struct.unpack('>I3', before)
      if string.sub(before, HEAD + 1) ~= string.sub(record, HEAD + 1) then
        mark(cell, before, slot, '0')
        mark(cell, record, slot, '1')
      end
    else
      slot = take_slot(cell, name)
      mark(cell, record, slot, '1')
    end
  end
  redis.call('HSET', NAMES, name, struct.pack('>I3', slot or 0) .. string.sub(record, 4))
  cell.n = cell.n + (#record > HEAD and 1 or 0) - (before and #before > HEAD and 1 or 0)
end

local function forget(cell, name, before)
  redis.call('HDEL', NAMES, name)
  cell.n = cell.n - (#before > HEAD and 1 or 0)
  cell.fresh = cell.fresh or cell.n == 0
  if cell.bits > 0 then
    local slot = struct.unpack('>I3', before)
    mark(cell, before, slot, '0')
    redis.call('SETRANGE', SLOTS, slot * WIDTH, string.rep('\0', WIDTH))
    cell.f = cell.f .. struct.pack('>I3', slot)
    if cell.n == 0 and redis.call('EXISTS', NAMES) == 0 then
      waiting = 0
      redis.call('DEL', INDEX, SLOTS)
      cell.bits, cell.h, cell.f = 0, 0, ''
    end
  end
end

local function expires_ms(record)
  return struct.unpack('>I6', record, 10)
end

-- Delete expired records among some of the names, and of more names while many of them have expired.
local function sweep(cell)
  for _ = 1, 8 do
    local found = redis.call('HSCAN', NAMES, cell.c, 'COUNT', 16)
    local expired = 0
    cell.c = found[1]
    for i = 1, #found[2], 2 do
      if expires_ms(found[2][i + 1]) <= now_ms then
        forget(cell, found[2][i], found[2][i + 1])
        expired = expired + 1
      end
    end
    if expired < 4 then
      return
    end
  end
end

local function write(cell)
  if cell.bits == 0 and cell.n >= INDEXED_FROM / 2 and redis.call('HLEN', NAMES) > INDEXED_FROM then
    build_index(cell)
  end
  send_marks()
  redis.call('HSET', CELL, 'n', cell.n, 'w', cell.w, 'bits', cell.bits, 'h', cell.h, 'f', cell.f, 'c', cell.c)
end
