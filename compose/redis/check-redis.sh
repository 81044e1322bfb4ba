#!/bin/bash
# The image's health check: succeeds if Redis serves, and if no command was refused when it loaded its data.
REDISCLI_AUTH=$(cat /run/secrets/redis_password) || exit
export REDISCLI_AUTH
redis-cli --user coronet ping | grep -q PONG &&
    redis-cli --user coronet info stats | grep -q '^unexpected_error_replies:0'
