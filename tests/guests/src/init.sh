#!/bin/busybox sh
# The first process of a guest: mounts what a running system has, runs /job, and powers off.
# Its console is the first serial line; results go to the second, and end with a line of status.
# busybox replaces no program that the image contains.
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/usr/bin:/usr/sbin:/bin:/sbin HOME=/root TERM=dumb

# TYPE PLACE: mounts a file system. If that fails, it says so, and the tests that need it fail.
attach() {
	mkdir -p "$2" && mount -t "$1" "$1" "$2" || echo "spile-vm: no $1 on $2"
}
attach proc /proc
attach sysfs /sys
attach devtmpfs /dev
attach devpts /dev/pts
attach tmpfs /dev/shm
attach tracefs /sys/kernel/tracing
attach debugfs /sys/kernel/debug
attach bpf /sys/fs/bpf
attach cgroup2 /sys/fs/cgroup
ln -s /proc/self/fd /dev/fd
mkdir -p /var/tmp
ip link set lo up || echo "spile-vm: no loopback interface"
# Since Linux 7.0 a thread whose time slice ends is switched out even inside BPF programs, and hits of
# other threads are skipped until it continues (docs/concurrency.md): tests would fail on a loaded host.
features=/sys/kernel/debug/sched/features
! grep -qw HRTICK $features || echo NO_HRTICK > $features
hostname -F /etc/hostname
# A loaded host takes an emulated processor away for milliseconds, also while a handler on it holds a lock.
mkdir -p $HOME/.systemtap
echo "-D MAXTRYLOCK=10000" > $HOME/.systemtap/rc
for module in /modules/*.ko; do
	insmod "$module" || echo "spile-vm: no module $module"
done

status=0
# COMMAND...: runs a test. Its failure is the failure of the whole run.
run() {
	"$@" || status=$?
}
stty raw -F /dev/ttyS1
(
	echo "spile-vm: started $(uname -r)"
	. /job
	echo
	echo "spile-vm: ended $status"
) </dev/null >/dev/ttyS1 2>&1
poweroff -f
