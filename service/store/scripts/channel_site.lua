-- Keep which site a channel's subscriptions are placed by; the first to say decides. KEYS channel   ARGV site
-- Returns the site, or nil if there is no such channel (any more).
if redis.call('HEXISTS', KEYS[1], 'url') == 1 then
  redis.call('HSETNX', KEYS[1], 'site', ARGV[1])
end
return redis.call('HGET', KEYS[1], 'site')
