#!/bin/sh
# Makes DIRECTORY: PostgreSQL's regression tests of the packages of this MAJOR version, and what they
# need compiled. Fetched from the Debian mirror that this machine is set up with.
set -eu
major=$1
place=$2

mkdir -p "$(dirname "$place")"
work=$(mktemp -d "$place.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p lists/partial headers suite

# The releases of this machine; a version that it lacks is that of the rivals, from Debian unstable.
keys=/usr/share/keyrings/debian-archive-keyring.gpg
release='$(RELEASE)'
[ -d "/usr/lib/postgresql/$major" ] || release=sid
format="\$(ORIGIN)|[signed-by=$keys] \$(REPO_URI) $release main"
apt-get indextargets --format "$format" 'Identifier: Packages' |
    sed -n 's/^Debian|//p' | sort -u >releases
if [ "$release" = sid ]; then grep -v -e -security "releases" | head -n 1 >one && mv one releases; fi
sed 's/^/deb /; p; s/^deb /deb-src /' releases >sources.list

apt() {
    apt-get -q -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o APT::Sandbox::User=root -o Acquire::Retries=2 \
        -o Dir::Cache::srcpkgcache= -o Dir::Cache::pkgcache= "$@"
}
apt update
installed=$(dpkg-query -W -f '${Version}' "postgresql-$major" 2>/dev/null || true)
apt source --download-only "postgresql-$major${installed:+=$installed}" ||
    apt source --download-only "postgresql-$major"
apt download "postgresql-server-dev-$major${installed:+=$installed}" ||
    apt download "postgresql-server-dev-$major"

tar -xf postgresql-*.orig.tar.* -C suite --strip-components=4 --wildcards '*/src/test/regress/*'
dpkg -x postgresql-server-dev-*.deb headers
mkdir suite/lib
cc -O1 -fPIC -shared -fno-strict-aliasing -fwrapv \
    -I "headers/usr/include/postgresql/$major/server" suite/regress.c -o suite/lib/regress.so
chmod -R a+rX suite
[ -e "$place" ] || mv suite "$place"
