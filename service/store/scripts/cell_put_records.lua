-- Store records that are newer than those of the same names.
-- KEYS: see cell_common
-- ARGV: 1 digest of the cell's pair, 2 '1' to store only over existing names, 3 number of partitions that the writer
--   assumes, 4 since which epoch (0: do not check), then name and record (slot 0) of each
-- Reply: answer; done unless a record was refused, because the cell is closed or the matrix has more partitions
-- include cell_common
local cell = look()
if not cell.m then
  return answer(cell, false)
end
local standing, epoch, partitions = string.match(cell.m, '^(%a+) (%d+) (%d+)')
local known = tonumber(ARGV[3])
local more = known > 0 and tonumber(partitions) > known and tonumber(epoch) > tonumber(ARGV[4])
local only_over = ARGV[2] == '1'
local done, latest_ms = true, 0
cell.fresh = cell.n == 0
for i = 5, #ARGV, 2 do
  local name, arriving = ARGV[i], ARGV[i + 1]
  local held = redis.call('HGET', NAMES, name)
  if held and expires_ms(held) <= now_ms then
    forget(cell, name, held)
    held = false
  end
  if (standing == 'closed' and not held) or (more and (not held or #held == HEAD)) then
    done = false
  else
    if only_over and (not held or #held == HEAD) then
      arriving = string.sub(arriving, 1, HEAD)
    end
    -- The newer version; of the same, a record with pairs; else the later expiry.
    local newer = not held
    if held then
      local version, until_ms = struct.unpack('>I6I6', arriving, 4)
      local other_version, other_until_ms = struct.unpack('>I6I6', held, 4)
      if version ~= other_version then
        newer = version > other_version
      elseif (#arriving > HEAD) ~= (#held > HEAD) then
        newer = #arriving > HEAD
      else
        newer = until_ms > other_until_ms
      end
    end
    if newer then
      keep(cell, name, held, arriving)
    end
    latest_ms = math.max(latest_ms, expires_ms(arriving))
  end
end
local tumbled
if known > 0 or only_over then -- else the records are copied from another cell
  cell.w, tumbled = counted(cell.w, (#ARGV - 4) / 2)
end
if tumbled or math.random(16) == 1 then
  sweep(cell)
end
write(cell)
kept_until(cell, latest_ms)
return answer(cell, done)
