#!/bin/sh
# Signs a message with python3, sends it with nc, prints the answer line. The secret stays in the
# environment, where only its owner (and the superuser) can read it.
#
#   AGENTCONTAINER_SECRET=… sign_python.sh HOST PORT TYPE [PAYLOAD]    PAYLOAD "-": from standard input
#   sign_python.sh 127.0.0.1 7000 list_agents
set -eu
[ -n "${AGENTCONTAINER_SECRET-}" ] && [ $# -ge 3 ] && [ $# -le 4 ] || {
    echo "usage: AGENTCONTAINER_SECRET=… sign_python.sh HOST PORT TYPE [PAYLOAD]" >&2
    exit 2
}
host=$1 port=$2 type=$3 payload=${4-}
[ -n "$payload" ] || payload='{}'
[ "$payload" != - ] || payload=$(cat)
: "${NONCE:=$(python3 -c 'import secrets; print(secrets.token_hex(16))')}"

line=$(printf %s "$payload" | python3 -c '
import hashlib, hmac, json, os, sys, time
try:
    payload = json.loads(sys.stdin.buffer.read().decode("utf-8"))
except ValueError as error:
    sys.exit("sign_python.sh: the payload is not JSON: %s" % error)
message = {"type": sys.argv[1], "sender": "admin", "timestamp": int(time.time()), "nonce": sys.argv[2],
           "payload": payload}
text = json.dumps(message, sort_keys=True, separators=(",", ":"))
key = os.fsencode(os.environ["AGENTCONTAINER_SECRET"])
print("%s,\"signature\":\"%s\"}" % (text[:-1], hmac.new(key, text.encode(), hashlib.sha256).hexdigest()))
' "$type" "$NONCE")
printf '%s\n' "$line" | nc "$host" "$port"
