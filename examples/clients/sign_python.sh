#!/bin/sh
# Signs a message with python3, sends it with nc, prints the answer line. The secret stays in the
# environment, where only its owner (and the superuser) can read it.
#
#   AGENTCONTAINER_SECRET=… sign_python.sh HOST PORT TYPE [PAYLOAD]    PAYLOAD "-": from standard input
#   sign_python.sh 127.0.0.1 7000 list_agents
set -eu
: "${AGENTCONTAINER_SECRET:?is not set: it is the secret to sign with}"
host=$1 port=$2 type=$3 payload=${4-}
[ -n "$payload" ] || payload='{}'
[ "$payload" != - ] || payload=$(cat)
: "${NONCE:=$(python3 -c 'import secrets; print(secrets.token_hex(16))')}"

line=$(printf %s "$payload" | python3 -c '
import hashlib, hmac, json, os, sys, time
message = {"type": sys.argv[1], "sender": "admin", "timestamp": int(time.time()), "nonce": sys.argv[2],
           "payload": json.loads(sys.stdin.buffer.read().decode("utf-8"))}
text = json.dumps(message, sort_keys=True, separators=(",", ":"))
key = os.fsencode(os.environ["AGENTCONTAINER_SECRET"])
print("%s,\"signature\":\"%s\"}" % (text[:-1], hmac.new(key, text.encode(), hashlib.sha256).hexdigest()))
' "$type" "$NONCE")
printf '%s\n' "$line" | nc "$host" "$port"
