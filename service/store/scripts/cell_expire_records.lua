-- Delete expired records, some at a time.
-- KEYS: see cell_common
-- ARGV: 1 digest of the cell's pair, 2 cursor, '0' at first
-- Reply: {next cursor, '0' at the end, answer}
-- include cell_common
local cell = look()
if not cell.m then
  return {'0', answer(cell, false)}
end
local found = redis.call('HSCAN', NAMES, ARGV[2], 'COUNT', 128)
for i = 1, #found[2], 2 do
  if expires_ms(found[2][i + 1]) <= now_ms then
    forget(cell, found[2][i], found[2][i + 1])
  end
end
write(cell)
return {found[1], answer(cell, true)}
