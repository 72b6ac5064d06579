#!/bin/sh
# Makes a configuration of apt that knows the packages of Debian 13, and no others: trixie.sh DIR
#
# DIR/apt.conf is for APT_CONFIG. Nothing of this machine's own apt is changed.
set -eu

dir=${1:?usage: trixie.sh DIR}
mkdir -p "$dir/lists/partial" "$dir/archives/partial"
dir=$(cd "$dir" && pwd)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] ${DEBIAN_MIRROR:-http://deb.debian.org/debian} trixie main" \
    >"$dir/sources.list"
cat >"$dir/apt.conf" <<END
Dir::Etc::SourceList "$dir/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$dir/lists";
Dir::Cache "$dir";
APT::Sandbox::User "root";
END
APT_CONFIG=$dir/apt.conf apt-get -qq update
