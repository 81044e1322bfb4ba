-- Library: queues items for a user's webhook.
-- Add an item, given as fields and values, to the queue if the user has a webhook. At most about 1,000 items wait.
local function queue_for_webhook(webhook, queue, ...)
  if redis.call('EXISTS', webhook) == 1 then
    redis.call('XADD', queue, 'MAXLEN', '~', 1000, '*', ...)
  end
end
