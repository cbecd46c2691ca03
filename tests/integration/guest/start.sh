# Process 1 of a guest's own root: interfaces, Soft-RoCE devices, sshd. Its arguments are on the kernel's command line.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
argument() { tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p"; }
number=$(argument guest)
hostname "guest$number"
# there is no udevd: nothing is loaded by itself
for module in virtio_net rdma_rxe ib_uverbs ib_umad rdma_ucm nf_tables; do modprobe $module || echo "no module $module"; done
ip link set lo up
# an interface is known by the last byte of its hardware address; renamed in two steps, names may be taken
for path in /sys/class/net/e*; do ip link set "${path##*/}" name "old${path##*/}"; done
for path in /sys/class/net/old*; do
  case $(cat "$path/address") in
    *:00) ip link set "${path##*/}" name admin0 ;;
    *:01) ip link set "${path##*/}" name eth0 ;;
    *:02) ip link set "${path##*/}" name eth1 ;;
  esac
done
ip addr add 10.0.2.15/24 dev admin0; ip link set admin0 up
for rail in 0 1; do
  [ -e /sys/class/net/eth$rail ] || continue
  ip link set eth$rail mtu "$(argument mtu)" up
  ip addr add "192.168.10$rail.$number/24" dev eth$rail
  rdma link add rxe$rail type rxe netdev eth$rail
done
# this machine's root has a home and passwords of its own, which are none of the guest's business
home=$(getent passwd 0 | cut -d: -f6)
mount -t tmpfs -o mode=700 home "$home"
rm -f /etc/shadow; echo 'root:*:20000:0:99999:7:::' >/etc/shadow; chmod 600 /etc/shadow
rm -f /etc/nccl.conf
mkdir -p /run/sshd "$home/.ssh"
cp /run/share/authorized_keys "$home/.ssh/"; cp /run/share/host_key /run/host_key
chown -R 0:0 "$home/.ssh" /run/host_key; chmod 700 "$home/.ssh"; chmod 600 "$home/.ssh/authorized_keys" /run/host_key
printf '%s\n' 'HostKey /run/host_key' 'PermitRootLogin prohibit-password' 'PasswordAuthentication no' 'UsePAM no' \
  'StrictModes no' 'UseDNS no' 'PidFile /run/sshd.pid' >/run/sshd_config
/usr/sbin/sshd -f /run/sshd_config -E /run/sshd.log || cat /run/sshd.log
[ -e /sys/class/infiniband/rxe0 ] && echo "READY after $(cut -d' ' -f1 /proc/uptime) s"
while :; do sleep 3600; done
