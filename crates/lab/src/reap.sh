# Waits until the lab is gone (the lab holds the other end of our stdin), then removes what is left
# of it: processes, network namespaces and bridges, System V shared memory of PostgreSQL, control
# groups, the directory.
trap '' INT TERM HUP
PATH=$PATH:/usr/sbin:/sbin
room=$1
cat >/dev/null
for note in "$room"/.running/*; do
    [ -f "$note" ] && kill -KILL -- "-$(cat "$note")" 2>/dev/null
done
for lock in "$room"/*/data/postmaster.pid; do
    [ -f "$lock" ] || continue
    set -- $(sed -n 7p "$lock")
    # Key and id: a server in an IPC namespace of its own wrote ids that mean another segment here.
    [ -n "${2-}" ] && grep -q "^ *$1  *$2 " /proc/sysvipc/shm && ipcrm -m "$2" 2>/dev/null
done
[ -f "$room/.network" ] && while read -r words; do
    ip $words 2>/dev/null
done <"$room/.network"
tries=0
while [ $tries -lt 100 ]; do
    left=
    [ -f "$room/.groups" ] && while read -r group; do
        # Children of a server that died by itself.
        [ -f "$group/cgroup.procs" ] && kill -KILL $(cat "$group/cgroup.procs") 2>/dev/null
        rmdir "$group" 2>/dev/null
        [ -d "$group" ] && left=$group
    done <"$room/.groups"
    [ -z "$left" ] && rm -rf -- "$room" 2>/dev/null
    [ -e "$room" ] || exit 0
    tries=$((tries + 1))
    sleep 0.05
done
