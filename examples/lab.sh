#!/bin/sh
# The demo: four nodes on this machine, a scout that searches them all, a traveller that comes home.
#
#   examples/lab.sh [--keep]
#
#   --keep          leave the nodes running afterwards, and say how to talk to them and stop them
#   AGENTCONTAINER  the binary (default: target/release/agentcontainer of this clone)
#   LAB_PORT        the first of four ports in a row, 1024 to 65532 (default: 7000)
#
# Needs sh, python3 and the binary. Everything it writes is below build/ of this clone and is
# removed at the end, as are the nodes; also after Ctrl-C or a failure.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
clone=$(dirname "$here")
: "${AGENTCONTAINER:=$clone/target/release/agentcontainer}" "${LAB_PORT:=7000}"

keep=no
case "$#${1-}" in
    0) ;;
    1--keep) keep=yes ;;
    *) echo "usage: lab.sh [--keep]" >&2; exit 2 ;;
esac

case $LAB_PORT in
    *[!0-9]* | 0* | ??????*) port_is=wrong ;;
    *) [ "$LAB_PORT" -ge 1024 ] && [ "$LAB_PORT" -le 65532 ] && port_is=right || port_is=wrong ;;
esac
[ "$port_is" = right ] || { echo "usage: LAB_PORT=N lab.sh [--keep]; N is 1024 to 65532" >&2; exit 2; }

step() { printf '\n== %s\n' "$*"; }
fail() { printf 'lab: FAILED: %s\n' "$*" >&2; exit 1; }
tools() { python3 "$here/lab_tools.py" "$@"; }

# Every command gets the secret through its environment: an argument would show in ps. Whatever
# it may want to write for itself (the stage of send) goes into our directory, too.
node() { AGENTCONTAINER_SECRET=$secret TMPDIR=$work XDG_STATE_HOME=$work/xdg "$AGENTCONTAINER" "$@"; }

case $AGENTCONTAINER in
    /*) ;;
    */*) AGENTCONTAINER=$PWD/$AGENTCONTAINER ;;
    *) AGENTCONTAINER=$(command -v "$AGENTCONTAINER" || echo "$AGENTCONTAINER") ;;
esac
[ -x "$AGENTCONTAINER" ] || fail "no binary at $AGENTCONTAINER (cargo build --release, or set AGENTCONTAINER)"
# The nodes have their secret from their configuration; one from the caller's shell is for other nodes.
unset AGENTCONTAINER_SECRET
secret=$(tools secret "$here/root.json")

# --- a place to work in, and its removal whatever happens -----------------------------------

pids=
mkdir -p "$clone/build"
work=$(mktemp -d "$clone/build/lab.XXXXXX")

stop_nodes() {
    for pid in $pids; do kill "$pid" 2>/dev/null || :; done
    for pid in $pids; do
        tries=100
        while kill -0 "$pid" 2>/dev/null; do
            # Ten seconds for an orderly end are plenty; a demo must not leave a node behind.
            [ "$tries" -gt 0 ] || kill -9 "$pid" 2>/dev/null || :
            tries=$((tries - 1))
            sleep 0.1
        done
    done
    pids=
}

finish() {
    status=$?
    trap - EXIT INT TERM HUP
    if [ "$status" -ne 0 ]; then
        for log in "$work"/*.log; do
            [ ! -s "$log" ] || { printf -- '--- end of %s\n' "${log##*/}"; tail -n 15 "$log"; } >&2
        done
    fi
    if [ "$status" -ne 0 ] || [ "$keep" = no ]; then
        stop_nodes
        rm -rf "$work"
        rmdir "$clone/build" 2>/dev/null || : # only if nobody else has anything in it
    fi
    exit "$status"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# --- the nodes ------------------------------------------------------------------------------

root=127.0.0.1:$LAB_PORT
department_a=127.0.0.1:$((LAB_PORT + 1))

tools ports-free "$LAB_PORT" || fail "set LAB_PORT to the first of four free ports"

configs=$here
if [ "$LAB_PORT" != 7000 ]; then
    configs=$work/configs
    tools shift-configs "$LAB_PORT" "$configs"
fi

step "starting four nodes at $root and the three ports after it"
for name in root department-a department-b lab-c; do
    TMPDIR=$work "$AGENTCONTAINER" server --config "$configs/$name.json" \
        --state-dir "$work/$name.state" </dev/null >"$work/$name.log" 2>&1 &
    pids="$pids $!"
done
deadline=$(($(date +%s) + 30))
set -- root department-a department-b lab-c
for pid in $pids; do
    # What answers at the port may be somebody else's node; that this one listens its own log says.
    until grep -q ' listening address=' "$work/$1.log"; do
        kill -0 "$pid" 2>/dev/null || fail "the node $1 ended at once: $(tail -n 1 "$work/$1.log")"
        [ "$(date +%s)" -lt "$deadline" ] || fail "the node $1 does not listen after 30 seconds"
        sleep 0.1
    done
    kill -0 "$pid" 2>/dev/null || fail "the node $1 ended at once: $(tail -n 1 "$work/$1.log")"
    shift
done

# --- the scout ------------------------------------------------------------------------------

cd "$clone"

step "deploying the travelling scout on root, which searches for chess and leaves clones below"
node deploy agents/demo/travelling_scout.py "$root" --activate '{"query":"chess"}' --json >"$work/deploy.json"

step "the tree, as the nodes say it is"
node tree "$root" --live

step "what the scout and its clones found"
tools hits "$work/deploy.json" department-a department-b lab-c -- root

step "asking the clone that stayed in department-a for openings"
node invoke travelling-scout "$department_a" --message '{"query":"opening"}' --json >"$work/invoke.json"
tools hits "$work/invoke.json" department-a --

# --- the traveller --------------------------------------------------------------------------

step "sending visit-and-go-back through all nodes, and waiting for it here"
node send agents/demo/visit_and_go_back.py "$root" --timeout 60 --json >"$work/send.json"
tools visits "$work/send.json" root department-a lab-c department-b

# --- the end --------------------------------------------------------------------------------

if [ "$keep" = yes ]; then
    # The secret by way of a file, so that it can be used without being shown.
    (umask 077 && printf '%s\n' "$secret" >"$work/admin-secret")
    step "the nodes stay (--keep)"
    echo "list agents:  $AGENTCONTAINER list $root --secret-file $work/admin-secret"
    echo "stop them:    kill$pids; rm -r $work"
    echo "lab: ok, four nodes still running"
else
    stop_nodes
    echo
    echo "lab: ok, four nodes searched, toured and stopped"
fi
