#!/bin/bash
# site.sh EVENKEEL STEPS: runs the steps of a page on machines, in the order of STEPS/list.
#
# The machines are network namespaces: `evenkeel` (10.0.0.10), `db1` (10.0.0.11) with PostgreSQL,
# `db2` (10.0.0.12) with MariaDB, and `web1` and `web2` (10.0.0.21, 10.0.0.22) with nginx, all as
# Debian installs them. Run this script as
# `unshare --mount --net --pid --fork --mount-proc --kill-child=KILL`: files that it writes are in
# memory, and its processes end with it. Prints the exit code of each step, or "not run: WHY" where
# the machines cannot be made.
set -euo pipefail

binary=$1 steps=$2
commands=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
declare -A address=([evenkeel]=10.0.0.10 [db1]=10.0.0.11 [db2]=10.0.0.12
    [web1]=10.0.0.21 [web2]=10.0.0.22)

skip() {
    echo "not run: $*"
    exit 0
}

# The files that Debian's packages and the page write, in memory.
make_files() {
    mount --make-rprivate /
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -p /run/site/home/evenkeel /run/site/etc
    cp -a /etc/. /run/site/etc
    mount --bind /run/site/etc /etc
    install "$binary" /run/site/evenkeel
    local directory
    for directory in /usr/local/bin /var/lib/mysql /var/lib/postgresql /var/log/postgresql \
        /var/www /var/log/nginx; do
        [[ -d $directory ]] || skip "no $directory here"
        mount -t tmpfs -o mode=755 tmpfs "$directory"
    done
    mkdir /run/{netns,mysqld,postgresql}
    chown mysql: /run/mysqld /var/lib/mysql
    chown postgres: /run/postgresql /var/lib/postgresql /var/log/postgresql
    rm -rf /etc/postgresql
    install -d -o postgres -g postgres /etc/postgresql
    mkdir -p /run/site/{web1,web2}/html
    touch /run/nginx.pid /run/site/{web1,web2}/nginx.pid
}

make_networks() {
    ip link set lo up
    ip link add bridge type bridge || skip 'no bridge here'
    ip link set bridge up
    local machine
    for machine in "${!address[@]}"; do
        ip netns add "$machine"
        ip link add "$machine" master bridge type veth peer name eth0 netns "$machine"
        ip link set "$machine" up
        ip -netns "$machine" link set lo up
        ip -netns "$machine" address add "${address[$machine]}/24" dev eth0
        ip -netns "$machine" link set eth0 up
    done
}

# The commands that need a whole machine, as far as pages use them.
make_commands() {
    install -m 755 /dev/stdin /usr/local/bin/sudo <<'SUDO'
#!/bin/bash
if [[ $1 == -u ]]; then
    exec runuser -u "$2" -- "${@:3}"
fi
exec "$@"
SUDO
    install -m 755 /dev/stdin /usr/local/bin/apt <<'APT'
#!/bin/bash
[[ $1 == install ]] && dpkg --status "${@:2}" >/dev/null
APT
    install -m 755 /dev/stdin /usr/local/bin/systemctl <<'SYSTEMCTL'
#!/bin/bash
set -e
case "$*" in
'restart postgresql')
    version=$(ls /etc/postgresql)
    pg_ctlcluster "$version" main stop 2>/dev/null || true
    pg_ctlcluster "$version" main start
    ;;
'restart mariadb')
    mariadb-admin shutdown 2>/dev/null || true
    mariadbd --user=mysql </dev/null >/run/mariadb.log 2>&1 &
    for ((tries = 0; tries < 300; tries++)); do
        mariadb-admin --silent ping 2>/dev/null && exit 0
        sleep 0.1
    done
    tail /run/mariadb.log
    exit 1
    ;;
'start nginx' | 'restart nginx')
    [[ ! -s /run/nginx.pid ]] || systemctl stop nginx
    nginx
    ;;
'stop nginx')
    stopped=$(cat /run/nginx.pid)
    nginx -s stop
    tail --pid="$stopped" -f /dev/null
    : >/run/nginx.pid
    ;;
*) exit 64 ;;
esac
SYSTEMCTL
    # `run` goes on in the background, in place of an earlier one; the reader has two terminals.
    install -m 755 /dev/stdin /usr/local/bin/evenkeel <<'EVENKEEL'
#!/bin/bash
program=/run/site/evenkeel
# A reader spends minutes on a page: until then, a server that was restarted is up again.
for ((tries = 0; tries < 300; tries++)); do
    [[ $1 == drain && $("$program" status) == *' down '* ]] || break
    sleep 0.1
done
[[ $1 == run ]] || exec "$program" "$@"
if [[ -e /run/evenkeel.pid ]]; then
    kill "$(cat /run/evenkeel.pid)"
    tail --pid="$(cat /run/evenkeel.pid)" -f /dev/null
fi
"$program" "$@" </dev/null >/run/evenkeel.log 2>&1 &
echo $! >/run/evenkeel.pid
for ((tries = 0; tries < 300; tries++)); do
    status=$("$program" status 2>/dev/null) || true
    [[ $status != *'up, primary'* ]] || exit 0
    [[ $status != *', http, '* || $status = *' starting '* ]] || exit 0
    kill -0 $! 2>/dev/null || break
    sleep 0.1
done
cat /run/evenkeel.log
exit 1
EVENKEEL
}

# Runs a script on a machine. On `evenkeel` no database has a Unix socket, so that clients cannot
# connect past Evenkeel. Web servers have directories of their own.
on() {
    local machine=$1 script=$2 before='cd ~/evenkeel;'
    [[ $machine != evenkeel ]] ||
        before+='mount -t tmpfs tmpfs /run/mysqld; mount -t tmpfs tmpfs /run/postgresql;'
    [[ $machine != web* ]] ||
        before+="mount --bind /run/site/$machine /var/www;
            mount --bind /run/site/$machine/nginx.pid /run/nginx.pid;"
    ip netns exec "$machine" \
        env -i PATH="$commands" HOME=/run/site/home USER=root LANG=C.UTF-8 \
        bash -euc "$before exec timeout 60 bash -euo pipefail $script"
}

start_servers() {
    local version
    version=$(ls /usr/lib/postgresql | sort -n | tail -1)
    pg_createcluster "$version" main >/run/createcluster.log
    mariadb-install-db --user=mysql --skip-test-db >/run/install-db.log 2>&1
    start db1 postgresql
    start db2 mariadb
    start web1 nginx
    start web2 nginx
}

start() {
    echo "systemctl restart $2" >"/run/start-$2.sh"
    on "$1" "/run/start-$2.sh" >"/run/start-$2.log" 2>&1 ||
        { cat "/run/start-$2.log" >&2 && exit 1; }
}

for program in ip runuser pg_createcluster mariadbd mariadb-install-db psql mariadb nginx; do
    command -v "$program" >/dev/null || skip "no $program here"
done
[[ -e /etc/ssl/private/ssl-cert-snakeoil.key ]] || skip 'no ssl-cert here'
make_files
make_networks
make_commands
start_servers
while read -r number machine; do
    status=0
    on "$machine" "$steps/$number.sh" >"$steps/$number.out" 2>&1 </dev/null || status=$?
    echo "$number $status"
    ((status == 0)) || break
done <"$steps/list"
