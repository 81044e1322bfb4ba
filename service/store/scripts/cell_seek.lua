-- Which of these names lie here, and their versions. ARGV[2] and on: names.
-- with cell_common
local cell, found = look(), {}
for i = 2, #ARGV do
  local held = redis.call('HGET', NAMES, ARGV[i])
  if held and #held > HEAD and expires_ms(held) > now_ms then
    found[#found + 1] = ARGV[i]
    found[#found + 1] = string.format('%d', (struct.unpack('>I6', held, 4)))
  end
end
return answer(cell, cell.m, found)
