#!/bin/sh
# enter_root.sh ROOT PROGRAM...: run a program with ROOT as its root, in the namespaces that unshare(1) has made.
set -eu
root=$1
shift
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mkdir -p "$root/former"
cd "$root"
pivot_root . former # not chroot, in which the kernel refuses user namespaces
cd /
umount --lazy /former
mount --make-rshared / # as a container manager does: systemd passes credentials by mounts
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=test "$@"
