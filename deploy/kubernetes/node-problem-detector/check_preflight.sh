#!/bin/sh
# A custom plugin of node-problem-detector: reports the verdict that `preflight gate --report-dir` wrote on this node.
#   check_preflight.sh VERDICT.json SECONDS
# Exit status 0: OK, 1: NONOK, 2: UNKNOWN: a verdict that is damaged, from another boot or older than SECONDS. The
# message has at most 80 bytes: for a failure, the action in brackets, then the fault. Needs sh, sed, head, cut, date.
verdict=${1:-/var/lib/preflight/node/verdict.json}
oldest_s=${2:-900}

tell() { # STATUS MESSAGE
	printf '%s\n' "$2" | head -n 1 | tr -cd ' -~\n' | cut -c 1-80
	exit "$1"
}
# One field of the document, which has one field per line, in printable ASCII.
field() {
	sed -n -e "s/^ \"$1\": \"\([^\"\\\\]*\)\",\{0,1\}\$/\1/p" -e "s/^ \"$1\": \([0-9]\{1,\}\),\{0,1\}\$/\1/p" "$verdict" 2>/dev/null | head -n 1
}

[ -r "$verdict" ] || tell 2 "no verdict of preflight on this node: $verdict"
[ "$(head -c 65537 "$verdict" | wc -c)" -le 65536 ] || tell 2 "the verdict of preflight is too long"
[ "$(field schema)" = preflight.verdict/1 ] || tell 2 "the verdict of preflight is damaged"

at=$(field at)
case $at in '' | *[!0-9]* | ???????????????*) tell 2 "the verdict of preflight is damaged: no time" ;; esac
age_s=$(($(date +%s) - at))
[ "$age_s" -ge -60 ] || tell 2 "the verdict of preflight is from the future"
[ "$age_s" -le "$oldest_s" ] || tell 2 "preflight last judged this node $age_s s ago"

boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
[ -z "$boot" ] || [ "$(field boot_id)" = "$boot" ] || tell 2 "preflight has not judged this node since it booted"

reason=$(field reason)
reason=${reason#preflight: }
# The action that a failure requires, in one word (docs/actions.md); verdicts of older versions have none.
action=$(field action)
case $action in '' | *[!a-z-]*) action= ;; *) action="[$action] " ;; esac
case $(field status) in
pass) tell 0 "preflight passed" ;;
fail) tell 1 "$action${reason:-$(field cause) failed}" ;;
unknown) tell 2 "not judged: ${reason:-unknown}" ;;
error) tell 2 "configuration of preflight: ${reason:-error}" ;;
*) tell 2 "the verdict of preflight is damaged: no status" ;;
esac
