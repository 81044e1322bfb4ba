#!/bin/bash
# Runs a node of the Redis Cluster: Redis, which announces this container's host name, and a loop that finds its peers.
#
# Nodes know each other by address only, and addresses change when containers are started again: nodes that were all
# stopped would not find each other. Therefore the loop resolves the host names in CLUSTER_NODES, and introduces each
# peer whose present address this node does not know (CLUSTER MEET, which also corrects the address of a known node).
set -eu

meet_peers() {
    local nodes peer address
    nodes=$(redis-cli --user cluster cluster nodes) || return 0
    for peer in $CLUSTER_NODES; do
        [ "$peer" != "$HOSTNAME" ] || continue
        read -r address _ < <(getent ahostsv4 "$peer") || continue
        [[ $nodes == *" $address:6379@16379,$peer "* ]] || redis-cli --user cluster cluster meet "$address" 6379
    done
}

find_peers() {
    REDISCLI_AUTH=$(cat /run/secrets/redis_cluster_password)
    export REDISCLI_AUTH
    while sleep 1; do
        meet_peers
    done
}

find_peers >/dev/null 2>&1 & # errors are those of a Redis that is starting or loading
exec redis-server /etc/redis/redis-cluster.conf --cluster-announce-hostname "$HOSTNAME"
