#!/bin/sh
# Reads an answer line, checks its signature, and prints it if it is genuine (otherwise: status 1).
#
#   AGENTCONTAINER_SECRET=… check_answer.sh [NONCE] <answer
#   NONCE=$(openssl rand -hex 16); export NONCE
#   sign_python.sh 127.0.0.1 7000 list_agents | check_answer.sh "$NONCE" | jq .result
#
# With the request's NONCE it also makes sure that this is the answer to that request, and not a
# genuine one from earlier that somebody kept.
set -eu
[ -n "${AGENTCONTAINER_SECRET-}" ] && [ $# -le 1 ] && [ ! -t 0 ] || {
    echo "usage: AGENTCONTAINER_SECRET=… check_answer.sh [NONCE] <ANSWER" >&2
    exit 2
}
IFS= read -r answer || [ -n "$answer" ] || { echo "no answer" >&2; exit 1; }

# The line is the signed text with ,"signature":"…" put in before its last brace.
signed=$(printf '%s\n' "$answer" | sed 's/,"signature":"[0-9a-fA-F]*"}$/}/')
signature=$(printf '%s\n' "$answer" | sed -n 's/^.*,"signature":"\([0-9a-fA-F]*\)"}$/\1/p')

printf %s "$signed" | python3 -c '
import hashlib, hmac, json, os, sys
signed, signature, nonce = sys.stdin.buffer.read(), sys.argv[1], sys.argv[2]
key = os.fsencode(os.environ["AGENTCONTAINER_SECRET"])
if not hmac.compare_digest(hmac.new(key, signed, hashlib.sha256).hexdigest(), signature.lower()):
    sys.exit("not genuine: " + signed.decode("utf-8", "replace"))
if nonce and json.loads(signed.decode("utf-8")).get("nonce") != nonce:
    sys.exit("genuine, but the answer to another request")
' "$signature" "${1-}" || exit 1
printf '%s\n' "$answer"
