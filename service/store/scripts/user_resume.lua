-- Tell a user of channels again. All that was withheld of one of them is queued as one item.
-- KEYS user index, outbox, user   ARGV now s, '*' if only what we paused, 1 if standing queries are heard again, too;
-- channel ids. Returns {{channel id, versions withheld} of each that was paused, what standing queries met meanwhile}.
-- include user_held
local resumed = {}
for i = 4, #ARGV do
  local held = held_of(KEYS[1], ARGV[i])
  local number, seq, seen, since, paused = fields_of(held or '')
  local version, mark = string.match(paused or '', '^ (%d+)(%*?)$')
  if version and (ARGV[2] == '' or mark == '*') then
    redis.call('HSET', KEYS[1], place(ARGV[i]), number .. ' ' .. seq .. ' ' .. seen .. ' ' .. since)
    local withheld = seen - version
    if withheld > 0 then
      redis.call('XADD', KEYS[2], '*', 'c', ARGV[i], 'v', seen, 't', ARGV[1], 'e', 0, 'm', '[]', 'a', version)
    end
    resumed[#resumed + 1] = {ARGV[i], withheld}
  end
end
local unheard = 0
if ARGV[3] == '1' then
  unheard = tonumber(redis.call('HGET', KEYS[3], 'unheard') or 0)
  redis.call('HDEL', KEYS[3], 'unheard')
end
return {resumed, unheard}
