-- Forget what has expired, of some names. ARGV[2] where to go on, 0 at first. The reply begins with where to go on; 0: that
-- was all.
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
