#!/bin/sh
# systemd.sh SCRATCH CHECKOUT VENV PYTHON: become systemd in the namespaces that unshare(1) has made for this process.
#
# Its root is an overlay of this machine's root, so that nothing is written there, with Coronet in /opt/coronet and the
# units as an operator installs them. Units of this machine are not seen. The network is that of the caller.
set -eu
scratch=$1 checkout=$2 venv=$3 python=$4

mount --make-rprivate /
mount -t tmpfs tmpfs "$scratch"
root=$scratch/root
mkdir "$scratch/upper" "$scratch/work" "$root" "$scratch/site" "$scratch/site-work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"

# The program: this environment's packages, and the checkout's code in place of its link to it.
packages=lib/python3.11/site-packages
mkdir -p "$root/opt/python" "$root/opt/coronet/bin" "$root/opt/coronet/$packages"
mount --bind "$python" "$root/opt/python"
mount -t overlay overlay -o "lowerdir=$venv/$packages,upperdir=$scratch/site,workdir=$scratch/site-work" \
    "$root/opt/coronet/$packages"
rm -f "$root/opt/coronet/$packages/_editable_impl_coronet.pth"
cp -r "$checkout/service" "$checkout/bots" "$checkout/workers" "$root/opt/coronet/$packages/"
ln -s /opt/python/bin/python3.11 "$root/opt/coronet/bin/python"
echo "home = /opt/python/bin" >"$root/opt/coronet/pyvenv.cfg"
cat >"$root/opt/coronet/bin/coronet" <<'END'
#!/opt/coronet/bin/python
from service.cli import main

main()
END
chmod +x "$root/opt/coronet/bin/coronet"

units=$root/run/units
mkdir -p "$units" "$root/etc/sysusers.d" "$root/etc/tmpfiles.d"
cp "$checkout"/compose/systemd/*.service "$checkout"/compose/systemd/*.timer "$units/"
cp "$checkout/compose/systemd/coronet.sysusers" "$root/etc/sysusers.d/coronet.conf"
cp "$checkout/compose/systemd/coronet.tmpfiles" "$root/etc/tmpfiles.d/coronet.conf"
for target in sysinit basic shutdown local-fs network network-online multi-user timers; do
    printf '[Unit]\nDefaultDependencies=no\n' >"$units/$target.target"
done

# Not chroot, in which the kernel refuses user namespaces (PrivateUsers=).
mkdir "$root/former"
cd "$root"
pivot_root . former
cd /
umount --lazy /former
mount --make-rshared / # as a container manager does: systemd passes credentials by mounts
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=test SYSTEMD_UNIT_PATH=/run/units \
    /lib/systemd/systemd --system --unit=basic.target --log-target=console --show-status=no
