#!/bin/sh
# Signs a message with jq and openssl, sends it with nc, prints the answer line.
#
#   AGENTCONTAINER_SECRET=… sign_jq.sh HOST PORT TYPE [PAYLOAD]        PAYLOAD "-": from standard input
#   sign_jq.sh 127.0.0.1 7000 invoke_agent '{"agent_id":"ping","message":{}}'
#   jq -Rs '{source_code: .}' agents/basic/ping.py | sign_jq.sh 127.0.0.1 7000 deploy_agent -
#
# Warning: "openssl dgst -hmac" takes the secret as an argument, and while it runs everybody on this
# machine can read it in the process list. Where others work, use sign_python.sh instead. Besides, jq
# up to 1.6 rounds whole numbers beyond 2^53; what is signed and sent is then the rounded one.
set -eu
[ -n "${AGENTCONTAINER_SECRET-}" ] && [ $# -ge 3 ] && [ $# -le 4 ] || {
    echo "usage: AGENTCONTAINER_SECRET=… sign_jq.sh HOST PORT TYPE [PAYLOAD]" >&2
    exit 2
}
host=$1 port=$2 type=$3 payload=${4-}
[ -n "$payload" ] || payload='{}'
[ "$payload" != - ] || payload=$(cat)
: "${NONCE:=$(openssl rand -hex 16)}"

# jq -S sorts the keys and -c leaves no spaces: that is the canonical text, and the text that is sent.
message=$(printf %s "$payload" | jq -cS --arg type "$type" --arg nonce "$NONCE" \
    --argjson timestamp "$(date +%s)" \
    '{type: $type, sender: "admin", timestamp: $timestamp, nonce: $nonce, payload: .}')
signature=$(printf %s "$message" | openssl dgst -sha256 -hmac "$AGENTCONTAINER_SECRET" | sed 's/^.*= *//')

# The signature goes in before the closing brace.
printf '%s,"signature":"%s"}\n' "${message%?}" "$signature" | nc "$host" "$port"
