#!/bin/busybox sh
# First process of the initial file system: makes the guest's root of this machine's, and hands over to start.sh.
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev
for module in virtio_pci 9pnet_virtio 9p overlay; do modprobe $module; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,ro,cache=loose host /host
mount -t tmpfs -o size=60% memory /memory; mkdir /memory/upper /memory/work /memory/root
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /memory/root
root=/memory/root
mkdir -p $root/usr/lib/modules  # absent on a machine that has no kernel of its own
mount -t tmpfs modules $root/usr/lib/modules && cp -a /lib/modules/. $root/usr/lib/modules/
mount -t proc proc $root/proc; mount -t sysfs sysfs $root/sys; mount -t devtmpfs devtmpfs $root/dev
for folder in run tmp; do mount -t tmpfs $folder $root/$folder; done
mkdir -p $root/dev/pts $root/dev/shm $root/run/share
mount -t devpts devpts $root/dev/pts; mount -t tmpfs shm $root/dev/shm
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none share $root/run/share
exec chroot $root /bin/bash /run/share/start.sh
