#!/bin/sh
# Builds a Debian package of preflight and its dependencies: build.sh WHEELS OUTPUT.deb
#
# WHEELS is a folder with the wheels of gpu-preflight and of all its dependencies, for Debian's python3 on this machine;
# nothing is downloaded. The package installs a virtual environment in /opt/preflight, as docs/upgrade.md describes, and
# the command, man page and completions in /usr. It depends on the minor version of python3 that it was built with.
# Needs dpkg-deb, pip 22.3 or newer, and no root. SOURCE_DATE_EPOCH sets the time of all files.
set -eu
umask 022
[ $# -eq 2 ] || { echo "usage: $0 WHEELS OUTPUT.deb" >&2; exit 2; }
wheels=$1 output=$2
python=${PYTHON:-/usr/bin/python3}
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-1}" PIP_DISABLE_PIP_VERSION_CHECK=1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
home=$tree/opt/preflight

"$python" -m venv --without-pip "$home"
python3 -m pip --isolated --python "$home" install --quiet --no-index --no-compile --find-links "$wheels" gpu-preflight
version=$("$home/bin/python3" -I -B -c 'from preflight.version import VERSION; print(VERSION)')
minor=$("$home/bin/python3" -I -B -c 'import sys; print("%d.%d" % sys.version_info[:2])')
next=$("$home/bin/python3" -I -B -c 'import sys; print("3.%d" % (sys.version_info[1] + 1))')

# Only the interpreter and the command remain: the other scripts name the folder of this build.
find "$home/bin" ! -name 'python*' ! -type d -delete
printf '#!/opt/preflight/bin/python3 -I\nfrom preflight.cli.main import main\n\nmain()\n' >"$home/bin/preflight"
chmod 755 "$home/bin/preflight"
printf 'home = %s\ninclude-system-site-packages = false\nversion = %s\n' "$(dirname "$python")" "$minor" >"$home/pyvenv.cfg"
rm -rf "$home/include" "$home/etc" # etc: examples of ClusterShell
find "$home" -path '*.dist-info/*' \( -name RECORD -o -name direct_url.json -o -name INSTALLER -o -name REQUESTED \) -delete
# Byte code that is never compared with its source, so that the prolog starts as fast as possible.
"$python" -m compileall -q -s "$tree" -p / --invalidation-mode unchecked-hash "$home/lib"

mkdir -p "$tree/usr/bin" "$tree/usr/share/doc/gpu-preflight" "$tree/DEBIAN"
ln -s "../../${home#"$tree/"}/bin/preflight" "$tree/usr/bin/preflight" # isolated (-I): see its first line above
mv "$home"/share/* "$tree/usr/share/" && rmdir "$home/share"
if [ -d "$tree/usr/share/zsh/site-functions" ]; then
    mkdir -p "$tree/usr/share/zsh/vendor-completions"
    mv "$tree"/usr/share/zsh/site-functions/* "$tree/usr/share/zsh/vendor-completions/"
    rmdir "$tree/usr/share/zsh/site-functions"
fi
find "$home/lib" -path '*gpu_preflight-*' -name LICENSE -exec cp {} "$tree/usr/share/doc/gpu-preflight/copyright" \;

cat >"$tree/DEBIAN/control" <<EOF
Package: gpu-preflight
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: ${DEBEMAIL:-root@localhost}
Depends: python3 (>= $minor~), python3 (<< $next~)
Recommends: ethtool, ibverbs-utils, infiniband-diags, iproute2, openssh-client, pciutils
Section: admin
Priority: optional
Installed-Size: $(du -k -s "$tree/opt" | cut -f 1)
Description: cluster preflight and diagnostics agent for GPU training clusters
 Its dependencies are included, in /opt/preflight, and used by nothing else.
EOF
(cd "$tree" && find opt usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
dpkg-deb --root-owner-group -Zxz --build "$tree" "$output" >/dev/null
echo "$output: gpu-preflight $version for python3 $minor"
