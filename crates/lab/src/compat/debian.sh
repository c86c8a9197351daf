# What every script that fetches a suite from Debian's sources begins with. $1: the directory to make.
set -eu
place=$1
mkdir -p "$(dirname "$place")"
work=$(mktemp -d "$place.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p lists/partial suite

# apt-get, with the releases that sources.list names here and nothing of this machine's.
apt() {
    apt-get -q -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$work/lists" -o APT::Sandbox::User=root -o Acquire::Retries=2 \
        -o Dir::Cache::srcpkgcache= -o Dir::Cache::pkgcache= "$@"
}

# Lines for sources.list, of the mirrors that this machine is set up with: of its own releases, or
# of the one that is named.
releases() {
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    apt-get indextargets 'Identifier: Packages' \
        --format "\$(ORIGIN)|deb [signed-by=$keys] \$(REPO_URI) ${1:-\$(RELEASE)} main" |
        sed -n 's/^Debian|//p' | sort -u >all
    if [ $# -eq 0 ]; then cat all; else grep -v -e -security all | head -n 1; fi
}

# The upstream source of a package, of the first of these releases (own: this machine's) whose mirror
# has it: not every mirror has all that it lists.
upstream() {
    package=$1
    shift
    for release in "$@"; do
        if [ "$release" = own ]; then releases; else releases "$release"; fi >lines
        while read -r line <&3; do
            echo "$line" | sed 's/^deb /deb-src /' >sources.list
            apt update || continue
            apt source --print-uris "$package" |
                sed -n "s/^'\([^']*\)' \([^ ]*\.orig\.tar\.[a-z0-9]*\) [0-9]* /\1 \2 /p" >found
            read -r address file sum <found || continue
            /usr/lib/apt/apt-helper -o APT::Sandbox::User=root download-file \
                "$address" "$file" "$sum" && return
        done 3<lines
    done
    echo "no mirror has the source of $package" >&2
    return 1
}

# Puts what was made into its place, unless somebody else has meanwhile.
keep() {
    chmod -R a+rX suite
    [ -e "$place" ] || mv suite "$place"
}
