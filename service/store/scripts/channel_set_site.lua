-- Store the registrable domain that places a channel's subscriptions, unless one is stored.
-- KEYS: channel
-- ARGV: registrable domain
-- Reply: the stored one, or nil if the channel does not exist
if redis.call('HEXISTS', KEYS[1], 'url') == 1 then
  redis.call('HSETNX', KEYS[1], 'site', ARGV[1])
end
return redis.call('HGET', KEYS[1], 'site')
