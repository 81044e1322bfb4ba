-- Queue the parts of a version for a user, once: the subscription records the last version that was queued for it. For
-- a paused subscription, the version is only recorded. For a subscription that is moving here from another channel,
-- versions are queued strictly in order, because the move queues the missing ones.
-- KEYS: user index, outbox, intents, webhook, its queue
-- ARGV: channel id, version, now (Unix s), marks of its news and of its edits (JSON, '' without that part)
-- Reply: 1 queued, 0 queued before or not its turn, 2 withheld by a pause, -1 not subscribed
-- include user_index
-- include webhook_queue
local held = held_of(KEYS[1], ARGV[1])
if not held then
  return -1
end
local number, seq, seen, since, paused = fields_of(held)
if tonumber(seen) >= tonumber(ARGV[2]) then
  return 0
end
if tonumber(seen) + 1 < tonumber(ARGV[2]) and string.find(redis.call('HGET', KEYS[3], ARGV[1]) or '', '^move ') then
  return 0
end
redis.call('HSET', KEYS[1], place(ARGV[1]), number .. ' ' .. seq .. ' ' .. ARGV[2] .. ' ' .. since .. paused)
if paused ~= '' then
  return 2
end
for edits = 0, 1 do
  local marks = ARGV[4 + edits]
  if marks ~= '' then
    redis.call('XADD', KEYS[2], '*', 'c', ARGV[1], 'v', ARGV[2], 't', ARGV[3], 'e', edits, 'm', marks)
    queue_for_webhook(KEYS[4], KEYS[5], 'c', ARGV[1], 'v', ARGV[2], 't', ARGV[3], 'e', edits)
  end
end
return 1
