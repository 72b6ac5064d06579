#!/bin/sh
# Runs a command in a Debian 13 (Python 3.13, Ganesha 6.5) on this checkout, as root:
#   debian13.sh DIR COMMAND...
#
# DIR/root is the system, made by mmdebstrap at the first call: it has apt and make, and what the
# command installs stays in it. The checkout is /srv/checkout there, and DIR/build is its build/, so the
# programs and the virtual environment of this machine's own Debian are not touched. Other directories
# of this machine are not seen. The command has this machine's network, and process and mount tables
# of its own: what it leaves ends with it.
set -eu

dir=${1:?usage: debian13.sh DIR COMMAND...}
shift
suite=trixie
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
checkout=$(cd "$(dirname "$0")/../.." && pwd)

if [ "$(id -u)" != 0 ]; then
    echo "debian13: a system of its own needs root; run: sudo make test-debian13" >&2
    exit 1
fi
mkdir -p "$dir/build"
dir=$(cd "$dir" && pwd)
root=$dir/root
if [ ! -e "$dir/.made" ]; then
    rm -rf "$root"
    # Documents of packages would be a tenth of it.
    mmdebstrap --quiet --variant=apt --include=ca-certificates,make \
        --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$suite" "$root" "$mirror"
    mkdir "$root/srv/checkout"
    # An index of packages may be certified for this machine only.
    cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
    env -u TMPDIR chroot "$root" update-ca-certificates >/dev/null
    touch "$dir/.made"
fi

# The repository of a worktree is elsewhere. The package has the time of the commit.
repository=$(cd "$checkout" && git rev-parse --path-format=absolute --git-common-dir 2>/dev/null || true)
case $repository in "$checkout"/*) repository= ;; esac

# The rest runs in namespaces of its own. --kill-child: nothing there outlives this script.
export root dir checkout repository
exec unshare --mount --pid --fork --kill-child --propagation private sh -eu -c '
    # A server asks the table of mounts what its root is.
    mount --bind "$root" "$root"
    mount --bind "$checkout" "$root/srv/checkout"
    mount --bind "$dir/build" "$root/srv/checkout/build"
    if [ -n "$repository" ]; then
        mkdir -p "$root$repository"
        mount --bind -o ro "$repository" "$root$repository"
    fi
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=0755 run "$root/run"
    for file in /etc/resolv.conf /etc/hosts; do
        [ ! -e "$file" ] || { touch "$root$file" && mount --bind "$file" "$root$file"; }
    done
    unset checkout dir repository TMPDIR
    exec chroot "$root" /usr/bin/env --chdir=/srv/checkout HOME=/root \
        GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=/srv/checkout \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"' sh "$@"
