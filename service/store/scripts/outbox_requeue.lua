-- Put the items of a dead letter back into the outbox, or into the queue of the webhook, once, without those of ended subscriptions.
-- KEYS: user index, outbox or queue of the webhook, marker of this dead letter
-- ARGV: batch of the letter (JSON)
-- include user_index
if not redis.call('SET', KEYS[3], '1', 'NX', 'EX', 86400) then
  return
end
for _, item in ipairs(cjson.decode(ARGV[1])['items']) do
  local channel, version, at, edits, left_out, met = unpack(item, 1, 6)
  local has_met = type(met) == 'table' and #met > 0
  local is_announcement = channel == string.rep('0', 40)
  if is_announcement or held_of(KEYS[1], channel) or has_met then
    redis.call(
      'XADD', KEYS[2], '*', 'c', channel, 'v', version, 't', at, 'e', is_announcement and 'a' or edits and 1 or 0, 'm', '[]',
      'x', type(left_out) == 'table' and #left_out > 0 and cjson.encode(left_out) or '[]',
      'w', has_met and cjson.encode(met) or '[]'
    )
  end
end
