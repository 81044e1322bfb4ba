-- Keep the newer of each record and what is there. ARGV[2] 1: only over what is there; [3] how many partitions the writer
-- knows of, [4] since which epoch; 0 if that is nothing to us; then of each record its name and itself, without a slot.
-- Done unless one was refused.
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
    -- Version, then whether there are pairs, then how long it is kept.
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
if known > 0 or only_over then -- else it is copied from another cell
  cell.w, tumbled = counted(cell.w, (#ARGV - 4) / 2)
end
if tumbled or math.random(16) == 1 then
  sweep(cell)
end
write(cell)
kept_until(cell, latest_ms)
return answer(cell, done)
