#!/usr/bin/env bash
# The README's first command in a new Debian 12 that has only python3 and pip, then its second; timed.
# Needs root, debootstrap and the network (DEBIAN_MIRROR if not the default one). What of pip's and apt's settings this machine has is lent to the new one.
# usage: tests/integration/install/fresh_debian.sh [--no-tests]
set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)

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

first=$(grep -m1 -E '^python3 -m venv' "$tree/README.md")
second=$(grep -m1 -E '^\.venv/bin/pytest' "$tree/README.md")
inside() {
  env -u VIRTUAL_ENV -u PYTHONPATH HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    chroot "$ROOT" sh -c "cd /preflight && $1"
}
echo "== $first"
started=$SECONDS status=0
inside "$first" || status=$?
echo "== exit status $status after $((SECONDS - started)) s (1: the demo cluster is sick)"
[[ $status -eq 1 ]]
inside 'test -s demo.html && wc -c demo.html'
inside 'mkdir /tmp/empty && cd /tmp/empty && /preflight/.venv/bin/preflight demo --html demo.html >/dev/null; test -s /tmp/empty/demo.html && echo "demo from an empty directory: ok"'
[[ ${1:-} == --no-tests ]] || { echo "== $second"; inside "CI= $second -q"; }
