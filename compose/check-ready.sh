#!/bin/bash
# The image's health check: succeeds if the program in this container is ready to work, otherwise prints the reason.
# Workers and bots answer on the port of their metrics, consoles on their own.
if ! { exec 3<>"/dev/tcp/127.0.0.1/${CORONET_METRICS_PORT:-9464}"; } 2>/dev/null; then
    exec 3<>"/dev/tcp/127.0.0.1/${CORONET_CONSOLE_PORT:-8080}" || exit 1
fi
printf 'GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3
read -r _ status _ <&3
[ "$status" = 200 ] || { cat <&3 && exit 1; }
