#!/usr/bin/env bash
# README in a new Debian 12 that has only python3 and pip: install, demo, wheel, then development and tests; timed.
# Needs root, debootstrap and the network (DEBIAN_MIRROR if not the default one). What of pip's and apt's settings this machine has is lent to the new one.
# usage: tests/integration/install/fresh_debian.sh [--no-tests]
set -euo pipefail
tree=$(cd "$(dirname "$0")/../../.." && pwd)

if [[ ${IN_NAMESPACE:-} != 1 ]]; then
  root=$(mktemp -d)
  trap 'rm -rf --one-file-system "$root"' EXIT
  echo "== debootstrap"
  debootstrap --variant=minbase --include=python3,python3-pip,ca-certificates bookworm "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$root.log" ||
    { tail -5 "$root.log"; exit 1; }
  rm -f "$root.log"
  for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
    [[ ! -e $file ]] || cp --parents -L "$file" "$root"
  done
  chmod 755 "$root" && mkdir "$root/preflight"
  git -C "$tree" archive HEAD | tar -x -C "$root/preflight"
  IN_NAMESPACE=1 ROOT="$root" unshare --mount --pid --fork "$0" "$@"
  exit
fi

mount -t proc proc "$ROOT/proc"
mount --rbind /sys "$ROOT/sys"
mount --rbind /dev "$ROOT/dev"
mount --make-rslave "$ROOT/sys" && mount --make-rslave "$ROOT/dev"

mapfile -t installs < <(grep -E '^python3 -m venv' "$tree/README.md") # from the clone, from wheels, for development
demo=$(grep -m1 -E '^\.venv/bin/preflight demo' "$tree/README.md")
wheels=$(grep -m1 -E '^python3 -m pip wheel' "$tree/README.md")
tests=$(grep -m1 -E '^\.venv/bin/pytest' "$tree/README.md")
[[ ${#installs[@]} -eq 3 ]]
inside() {
  env -u VIRTUAL_ENV -u PYTHONPATH HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    chroot "$ROOT" sh -c "cd /preflight && $1"
}
started=$SECONDS
sick() { # run a command that has to end with 1: the demo cluster is sick
  local status=0
  echo "== $1"
  inside "$1" || status=$?
  echo "== exit status $status after $((SECONDS - started)) s"
  [[ $status -eq 1 ]]
}
sick "${installs[0]} && $demo"
inside 'test -s demo.html && wc -c demo.html && rm -rf .venv'
sick "$wheels && ${installs[1]} && $demo"
inside "rm -rf .venv && ${installs[2]}"
inside 'mkdir /tmp/empty && cd /tmp/empty && /preflight/.venv/bin/preflight demo --html demo.html >/dev/null; test -s /tmp/empty/demo.html && echo "demo from an empty directory: ok"'
[[ ${1:-} == --no-tests ]] || { echo "== $tests"; inside "CI= $tests -q"; }
