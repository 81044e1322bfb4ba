-- Resume subscriptions of a user; all withheld versions of a channel are queued as one item.
-- KEYS: user index, outbox, user, webhook, its queue
-- ARGV: now (Unix s), '*' to resume only automatic pauses or '', '1' to resume saved searches, too, then channel ids
-- Reply: {{{channel id, number of withheld versions} of each that was paused}, number of matches of saved searches
--   meanwhile, 1 if these were paused}
-- include user_index
-- include webhook_queue
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
      queue_for_webhook(KEYS[4], KEYS[5], 'c', ARGV[i], 'v', seen, 't', ARGV[1], 'e', 0, 'a', version)
    end
    resumed[#resumed + 1] = {ARGV[i], withheld}
  end
end
local unheard, searches_paused = 0, 0
if ARGV[3] == '1' then
  unheard = tonumber(redis.call('HGET', KEYS[3], 'unheard') or 0)
  searches_paused = redis.call('HDEL', KEYS[3], 'unheard')
end
return {resumed, unheard, searches_paused}
