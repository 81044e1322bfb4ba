#!/bin/bash
# Creates the Redis Cluster of the nodes in CLUSTER_NODES, and waits until it takes writes: the first half of the nodes
# become primaries, the others their replicas. The nodes introduce each other: see cluster-node.sh.
#
# Each step changes only what is missing, so that this may be run at every start, and again after an interruption. Slots
# are assigned only if no node knows an owner for each. A node without slots becomes a replica of the primary that has
# the fewest, also one that has lost its data.
set -eu
SLOTS=16384
DEADLINE_S=$((SECONDS + ${TIMEOUT_S:-90}))
read -r -a nodes <<<"$CLUSTER_NODES"
REDISCLI_AUTH=$(cat /run/secrets/redis_cluster_password)
export REDISCLI_AUTH

ask() { # ask NODE COMMAND...
    timeout 5 redis-cli --user cluster -h "$1" "${@:2}"
}

until_succeeds() { # until_succeeds DESCRIPTION COMMAND...
    until "${@:2}"; do
        if [ "$SECONDS" -ge "$DEADLINE_S" ]; then
            echo "Gave up waiting until $1. See the logs of the nodes: $CLUSTER_NODES." >&2
            exit 1
        fi
        sleep 0.5
    done
}

all_are_connected() {
    local asked known name
    for asked in "${nodes[@]}"; do
        known=$(ask "$asked" cluster nodes) || return
        for name in "${nodes[@]}"; do # a line is: ID ADDRESS,NAME FLAGS PRIMARY ... STATE [SLOTS]...
            awk -v name="$name" '
                $2 ~ "," name "$" && $3 !~ /fail|handshake|noaddr/ && $8 == "connected" { found = 1 }
                END { exit !found }' <<<"$known" || return
        done
    done
}

all_slots_are_assigned() {
    local node
    for node in "${nodes[@]}"; do
        ask "$node" cluster info | grep -q "^cluster_slots_assigned:$SLOTS" && return
    done
    return 1
}

assign_slots() {
    local primaries=$((${#nodes[@]} / 2)) place
    for ((place = 0; place < primaries; place++)); do
        ask "${nodes[place]}" cluster addslotsrange \
            $((place * SLOTS / primaries)) $(((place + 1) * SLOTS / primaries - 1)) || true # assigned before
    done
}

# Prints the first node with neither slots nor a primary, and the id of the primary with the fewest replicas.
next_replica() {
    local node
    for node in "${nodes[@]}"; do # each is asked about itself, because others hear of a change later
        ask "$node" cluster nodes | awk -v node="$node" '$3 ~ /myself/ { print node, $1, $4, (NF > 8) }'
    done | awk '
        $3 != "-" { replicas[$3]++; next }
        $4 == 1 { primaries[$2]; next }
        idle == "" { idle = $1 }
        END {
            for (id in primaries) if (least == "" || replicas[id] + 0 < replicas[least] + 0) least = id
            if (idle != "" && least != "") print idle, least
        }'
}

all_have_work() {
    local node primary
    while read -r node primary < <(next_replica); do
        echo "$node becomes a replica of $primary."
        ask "$node" cluster replicate "$primary" || return # it does not know the primary yet
    done
}

all_take_writes() {
    local node state
    for node in "${nodes[@]}"; do
        ask "$node" cluster info | grep -q '^cluster_state:ok' || return
        state=$(ask "$node" info replication) || return
        grep -q '^role:slave' <<<"$state" || grep -q '^min_slaves_good_slaves:[1-9]' <<<"$state" || return
    done
}

until_succeeds "all nodes are connected" all_are_connected
if all_slots_are_assigned; then
    echo "All slots are assigned."
else
    echo "Assigning slots."
    assign_slots
    until_succeeds "all slots are assigned" all_slots_are_assigned
fi
until_succeeds "every node has slots or a primary" all_have_work
until_succeeds "the cluster takes writes" all_take_writes
echo "The cluster takes writes."
