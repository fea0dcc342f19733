# A node's first process: makes the node's own view of the machine, says that it has booted, and from then on only reaps.
#
# It is started in fresh mount, pid, uts, ipc, network and cgroup namespaces, among the node's own control groups.
#   $1 name  $2 the folder that is the node's disk  $3 a folder that must stay where it is  $4 kinds of control groups
set -eu
name=$1 disk=$2 keep=$3 kinds=$4
mount --make-rprivate /
hostname "$name"

# The network namespace's own devices; hides the machine's control groups as well.
mount -t sysfs sysfs /sys
if [ "$kinds" = v2 ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
    done
else
    mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
    for kind in $kinds; do
        case $kind in name=*) options=none,$kind ;; *) options=$kind ;; esac
        folder=/sys/fs/cgroup/${kind#name=}
        mkdir "$folder"
        mount -t cgroup -o "$options" cgroup "$folder"
        # Controllers that share a tree are found under each of their names.
        case $kind in *,*) for one in $(echo "$kind" | tr , ' '); do ln -s "$folder" "/sys/fs/cgroup/$one"; done ;; esac
    done
fi

# Default paths, but the node's own; nothing is made on the machine. What must stay may lie below one of them.
exec 3<"$keep"
for folder in /run /var/lib; do
    mount -t tmpfs -o mode=755 node "$folder"
done
[ -d "$keep" ] || { mkdir -p "$keep" && mount --rbind /proc/self/fd/3 "$keep"; }
exec 3<&-
# The disk outlives a crash, /run does not.
for folder in lib/kubelet lib/containerd log; do
    mkdir -p "$disk/$folder" "/var/$folder"
    mount --bind "$disk/$folder" "/var/$folder"
done
mkdir -p /run/netns /run/containerd /var/lib/cni

# The kubelet would set these, and they are the whole machine's: it finds what it wants, in files of ours.
for pair in kernel/panic=10 kernel/panic_on_oops=1 vm/overcommit_memory=1 vm/panic_on_oom=0 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=/run/sysctl/${pair%=*}
    mkdir -p "${file%/*}"
    echo "${pair#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${pair%=*}"
done
# These are the node's own.
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
# What pods mount the node's processes shall see.
mount --make-rshared /

: >"$disk/booted"
# Orphans become our children. `wait` reaps them all.
while :; do
    sleep 3600 &
    wait
done
