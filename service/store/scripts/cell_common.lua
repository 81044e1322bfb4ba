-- A cell of a matrix: its postings and, if its matrix has or had several cells, its membership.
-- KEYS: 1 shared hash of the cells of a bucket, 2 own hash of the cell
-- ARGV: 1 id of the cell (8 bytes), further ones by script
-- A posting has SIZE bytes: see service.discovery.postings. A cell with up to FEW postings and without membership is a
-- field of the shared hash, ID → postings: so small that Redis keeps the hash as a listpack, without a key for each.
-- With up to SHARED_MOST postings and without membership, it has several fields of FEW postings each: ID → number of
-- further fields (1 byte), postings; and ID, 1 … (1 byte) → postings.
-- Other cells have a hash of their own, and in the shared hash ID → number of bits (1 byte), expiry of the own hash (4).
-- The own hash has pages of postings, BITS.PAGE → postings; the page of a posting is the first BITS bits of its name.
-- Other fields: m membership, x record of the matrix, and, only if there are several pages, n: number of postings, space,
-- time of their last change in µs. Readers use n to notice that postings which they have read have changed.
local SHARED, CELL = unpack(KEYS)
local ID = ARGV[1]
local SIZE, FEW, SHARED_MOST, OWN_LEAST, PAGE, MOST_BITS = 13, 4, 32, 16, 64, 12
local LIFE_S, SLACK_S = 86400, 3600
local TIME = redis.call('TIME')
local now_s = tonumber(TIME[1])

local function further_fields(id, count)
  local fields = {}
  for i = 1, count do
    fields[i] = id .. string.char(i)
  end
  return fields
end

-- Return the postings that a cell has in the shared hash, of which `held` is the first field; nil if it has its own hash.
local function shared_postings(id, held)
  if #held % SIZE == 0 then
    return held
  elseif #held % SIZE == 1 then
    local further = redis.call('HMGET', SHARED, unpack(further_fields(id, string.byte(held))))
    return string.sub(held, 2) .. table.concat(further)
  end
end

-- Replace the postings of a cell in the shared hash.
local function write_shared(id, before, after)
  local count, kept = math.ceil(#before / SIZE / FEW) - 1, math.ceil(#after / SIZE / FEW) - 1
  for i = math.max(kept + 1, 1), count do
    redis.call('HDEL', SHARED, id .. string.char(i))
  end
  if after == '' then
    redis.call('HDEL', SHARED, id)
    return
  end
  for i = 1, kept do
    local first = i * FEW * SIZE + 1
    local part = string.sub(after, first, first + FEW * SIZE - 1)
    if part ~= string.sub(before, first, first + FEW * SIZE - 1) then
      redis.call('HSET', SHARED, id .. string.char(i), part)
    end
  end
  local part = string.sub(after, 1, FEW * SIZE)
  if kept ~= count or part ~= string.sub(before, 1, FEW * SIZE) then
    redis.call('HSET', SHARED, id, kept > 0 and string.char(kept) .. part or part)
  end
end

local function look()
  local held = redis.call('HGET', SHARED, ID) or ''
  local few = shared_postings(ID, held)
  if few then
    return {few = few, n = #few / SIZE}
  end
  local found = redis.call('HMGET', CELL, 'm', 'x', 'n')
  local cell = {bits = string.byte(held), until_s = struct.unpack('>I4', held, 2), m = found[1], x = found[2]}
  cell.n = found[3] and tonumber(string.match(found[3], '^%d+')) or redis.call('HSTRLEN', CELL, '0.0') / SIZE
  if not cell.m and redis.call('EXISTS', CELL) == 0 then
    cell.until_s = 0 -- the hash is created, and has no expiry
  end
  return cell
end

-- Store the number of postings after a change of the pages.
local function write_count(cell)
  if cell.bits > 0 then
    redis.call('HSET', CELL, 'n', string.format('%d %d%06d', cell.n, TIME[1], TIME[2]))
  end
end

-- Return the reply of all scripts: {membership, matrix, number of postings, 1 if done}.
local function answer(cell, done)
  return {cell.m or false, cell.x or false, cell.n, done and 1 or 0}
end

local function expiry_s(postings, at)
  return (struct.unpack('>I4', postings, at + 9))
end

local function unexpired(postings)
  local kept = {}
  for at = 1, #postings, SIZE do
    if expiry_s(postings, at) > now_s then
      kept[#kept + 1] = string.sub(postings, at, at + SIZE - 1)
    end
  end
  return #kept * SIZE == #postings and postings or table.concat(kept)
end

local function place_of(postings, name)
  local at = string.find(postings, name, 1, true)
  while at and (at - 1) % SIZE ~= 0 do
    at = string.find(postings, name, at + 1, true)
  end
  return at
end

-- Return whether a posting is valid instead of that at `at`: the later one, then a withdrawal, then the greater weight.
local function supersedes(posting, postings, at)
  local mine, other = expiry_s(posting, 1), expiry_s(postings, at)
  if mine ~= other then
    return mine > other
  end
  local weight, before = string.byte(posting, 9), string.byte(postings, at + 8)
  return weight ~= before and before ~= 0 and (weight == 0 or weight > before)
end

local function merge(postings, arriving, accepts)
  local done = true
  for _, posting in ipairs(arriving) do
    local at = place_of(postings, string.sub(posting, 1, 8))
    if not at then
      if accepts then
        postings = postings .. posting
      end
      done = done and accepts
    elseif supersedes(posting, postings, at) then
      postings = string.sub(postings, 1, at - 1) .. posting .. string.sub(postings, at + SIZE)
    end
  end
  return postings, done
end

local function page_of(posting, bits)
  local first, second = string.byte(posting, 1, 2)
  return bits .. '.' .. math.floor((first * 256 + second) / 2 ^ (16 - bits))
end

-- Return the postings by page.
local function by_page(postings, bits)
  local found = {}
  for at = 1, #postings, SIZE do
    local posting = string.sub(postings, at, at + SIZE - 1)
    local page = page_of(posting, bits)
    found[page] = found[page] or {}
    table.insert(found[page], posting)
  end
  return found
end

-- Write all postings anew, in 2 ^ bits pages, without expired ones.
local function write_pages(cell, bits)
  local held, before, all = redis.call('HGETALL', CELL), {}, {}
  for i = 1, #held, 2 do
    if string.find(held[i], '.', 1, true) then
      before[held[i]] = held[i + 1]
      all[#all + 1] = unexpired(held[i + 1])
    end
  end
  all = table.concat(all)
  cell.n, cell.bits = #all / SIZE, bits
  write_count(cell)
  for page, postings in pairs(by_page(all, bits)) do
    local after = table.concat(postings)
    if before[page] ~= after then
      redis.call('HSET', CELL, page, after)
    end
    before[page] = nil
  end
  for page in pairs(before) do
    redis.call('HDEL', CELL, page)
  end
  if bits == 0 then
    redis.call('HDEL', CELL, 'n')
  end
  if not cell.m and cell.n <= OWN_LEAST then
    redis.call('DEL', CELL)
    redis.call('HDEL', SHARED, ID)
    write_shared(ID, '', all)
    cell.few, cell.bits, cell.until_s = all, nil, nil
  else
    redis.call('HSET', SHARED, ID, struct.pack('>BI4', bits, cell.until_s))
  end
end

local function fit_pages(cell)
  local bits = cell.bits
  while cell.n > PAGE * 2 ^ bits and bits < MOST_BITS do
    bits = bits + 1
  end
  while cell.n < PAGE / 8 * 2 ^ bits and bits > 0 do
    bits = bits - 1
  end
  if bits ~= cell.bits or (not cell.m and cell.n <= OWN_LEAST) then
    write_pages(cell, bits)
  end
end

-- Move a small cell into a hash of its own, with these postings.
local function enlarge(cell, postings)
  write_shared(ID, cell.few, '')
  if #postings > 0 then
    redis.call('HSET', CELL, '0.0', postings)
  end
  cell.few, cell.bits, cell.until_s, cell.n = nil, 0, 0, #postings / SIZE
end

-- Let the keys exist at least until then.
local function keep_until(cell, until_s)
  if cell.bits and until_s > cell.until_s then
    cell.until_s = until_s + SLACK_S
    redis.call('HSET', SHARED, ID, struct.pack('>BI4', cell.bits, cell.until_s))
    redis.call('EXPIREAT', CELL, cell.until_s)
  end
  if redis.call('TTL', SHARED) < (cell.until_s or until_s) - now_s then
    redis.call('EXPIREAT', SHARED, (cell.until_s or until_s) + SLACK_S)
  end
end

-- Delete what has expired in the shared hash.
local function sweep_shared()
  local held = redis.call('HGETALL', SHARED)
  for i = 1, #held, 2 do
    if #held[i] == #ID then
      local before = shared_postings(held[i], held[i + 1])
      if before then
        write_shared(held[i], before, unexpired(before))
      elseif struct.unpack('>I4', held[i + 1], 2) <= now_s then
        redis.call('HDEL', SHARED, held[i])
      end
    end
  end
end
