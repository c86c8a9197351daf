# PostgreSQL's regression tests of the packages of the version $2, and what they need compiled.
major=$2
mkdir headers

# A version that this machine's releases lack is that of the rivals, from Debian unstable.
if [ -d "/usr/lib/postgresql/$major" ]; then releases; else releases sid; fi >lines
sed 'p; s/^deb /deb-src /' lines >sources.list
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
keep
