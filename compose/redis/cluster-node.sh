#!/bin/bash
# Runs a node of the Redis Cluster: Redis, which announces this container's host name, and a loop that finds its peers.
#
# Nodes know each other by address only, and addresses change when containers are started again: nodes that were all
# stopped would not find each other. Therefore the loop resolves the host names in CLUSTER_NODES, and introduces each
# peer whose present address this node does not know (CLUSTER MEET, which also corrects the address of a known node).
#
# A primary that has lost its data must not be back before its replica has taken over: the replica would copy the empty
# node, and lose the data as well.
set -eu
NO_PEER_AFTER_S=5 # at the first start nobody answers

ask() {
    REDISCLI_AUTH=$(cat /run/secrets/redis_cluster_password) timeout 2 redis-cli --user cluster "$@" 2>/dev/null
}

# Prints "primary" if a peer counts on this host as a primary with slots, else "loading", "known" or nothing.
seen_by_peers() {
    local peer
    for peer in $CLUSTER_NODES; do
        [ "$peer" = "$HOSTNAME" ] || ask -h "$peer" cluster nodes || true
    done | awk -v name="$HOSTNAME" '
        $1 == "LOADING" { seen = "loading" }
        $3 ~ /myself/ && seen == "" { seen = "known" }
        $2 ~ "," name "$" && $3 ~ /master/ && NF > 8 { seen = "primary"; exit }
        END { print seen }'
}

wait_for_replacement() {
    while :; do
        case $(seen_by_peers) in
            primary) echo "This node has no data, but the others count on it: waiting until its replica has taken over." ;;
            loading) ;;
            known) return ;;
            *) [ "$SECONDS" -lt "$NO_PEER_AFTER_S" ] || return 0 ;;
        esac
        sleep 1
    done
}

meet_peers() {
    local nodes peer address
    nodes=$(ask cluster nodes) || return 0
    for peer in $CLUSTER_NODES; do
        [ "$peer" != "$HOSTNAME" ] || continue
        read -r address _ < <(getent ahostsv4 "$peer") || continue
        [[ $nodes == *" $address:6379@16379,$peer "* ]] || ask cluster meet "$address" 6379
    done
}

find_peers() {
    while sleep 1; do
        meet_peers
    done
}

[ -e nodes.conf ] || wait_for_replacement
find_peers >/dev/null &
exec redis-server /etc/redis/redis-cluster.conf --cluster-announce-hostname "$HOSTNAME"
