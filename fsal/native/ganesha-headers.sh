#!/bin/sh
# Obtains the headers of the nfs-ganesha that is installed, into DIR (first argument).
#
# Debian ships no -dev package for Ganesha, so the upstream tarball of Debian's source package is
# fetched through a deb-src entry that exists only inside this script's own temporary apt state:
# the machine's sources are not touched. A config.h with Debian's build switches is generated; that
# they are the right ones is checked by the static assertions in ganesha.h.
set -eu

dir=${1:?usage: ganesha-headers.sh DIR}
version=$(dpkg-query -W -f '${source:Version}' nfs-ganesha 2>/dev/null) || {
    echo "ganesha-headers: nfs-ganesha is not installed; run: apt-get install nfs-ganesha" >&2
    exit 1
}
if [ -f "$dir/.version" ] && [ "$(cat "$dir/.version")" = "$version" ]; then
    exit 0
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT INT TERM
# The sandbox user of apt must be able to enter the directory, or apt warns at every fetch.
chmod 755 "$tmp"

# The binary package's own mirror, suite by suite: any deb line of this machine can serve sources.
mkdir -p "$tmp/parts" "$tmp/lists/partial"
apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk 'NF == 3 && !seen[$0]++ { print "deb-src", $1, $2, $3 }' > "$tmp/parts/src.list"
if [ ! -s "$tmp/parts/src.list" ]; then
    echo "ganesha-headers: apt knows no package source; run: apt-get update" >&2
    exit 1
fi
apt_src() {
    apt-get -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$tmp/parts" \
        -o Dir::State::Lists="$tmp/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
        -o APT::Sandbox::User=root "$@"
}
apt_src update > "$tmp/log" 2>&1 &&
    (cd "$tmp" && apt_src source --download-only --tar-only "nfs-ganesha=$version") >> "$tmp/log" 2>&1 || {
    cat "$tmp/log" >&2
    echo "ganesha-headers: the source package nfs-ganesha $version could not be fetched" >&2
    exit 1
}

mkdir "$tmp/out"
tar -xf "$tmp"/nfs-ganesha_*.orig.tar.gz -C "$tmp/out" --strip-components=2 --wildcards '*/src/include/*'
cat > "$tmp/out/include/config.h" <<'CONFIG'
/* Generated: the switches of Debian's build that change the layout of Ganesha's structures. */
#ifndef CONFIG_H
#define CONFIG_H
#define LINUX 1
#define NFS_GANESHA 1
#define LITTLEEND 1
#define HAVE_DAEMON 1
#define HAVE_STRING_H 1
#define HAVE_STRNLEN 1
#define HAVE_KRB5 1
#define _HAVE_GSSAPI 1
#define _USE_9P 1
#define _USE_NFS3 1
#define _USE_NLM 1
#define _USE_RQUOTA 1
#define USE_NFSACL3 1
#define USE_DBUS 1
#define USE_CAPS 1
#define USE_BLKID 1
#define GSH_CAN_HOST_LOCAL_FS 1
#define _LGPL_SOURCE 1
#endif
CONFIG
printf '%s\n' "$version" > "$tmp/out/.version"
rm -rf "$dir"
mkdir -p "$(dirname "$dir")"
mv "$tmp/out" "$dir"
