"""Lines as operators paste them, with random secrets and identities, and look-alikes without any.

Each template has one place of a secret or an identity. ``{pw}`` and similar names draw secrets; ``{user}``, ``{host}``
draw identities; ``{~name}`` draws harmless text that makes the line realistic.
"""

# ruff: noqa: E501

from __future__ import annotations

import base64
import random
import re
import string
from collections.abc import Callable, Mapping

ALNUM = string.ascii_letters + string.digits
_SYLLABLES = (
    "ka",
    "ro",
    "mi",
    "ten",
    "vos",
    "lu",
    "dre",
    "pin",
    "sha",
    "zor",
    "bel",
    "qui",
    "fan",
    "tov",
    "rys",
    "gow",
)


def _text(chance: random.Random, alphabet: str, least: int, most: int | None = None) -> str:
    return "".join(chance.choice(alphabet) for _ in range(chance.randint(least, most or least)))


def _password(chance: random.Random) -> str:
    """Draw a password with letters, a digit and perhaps a sign, like those of people and generators."""
    letters = _text(chance, string.ascii_letters, 3, 9)
    made = letters + _text(chance, string.digits, 1, 3) + _text(chance, ALNUM + "!@%^_+.-", 2, 8) + chance.choice(ALNUM)
    return made


def _plain_password(chance: random.Random) -> str:
    return _text(chance, string.ascii_letters, 3, 9) + _text(chance, string.digits, 1, 3) + _text(chance, ALNUM, 3, 9)


def _name(chance: random.Random) -> str:
    return "".join(chance.sample(_SYLLABLES, chance.randint(2, 4)))


def _user(chance: random.Random) -> str:
    return chance.choice(("{0}", "{0}{1}", "{2}{0}", "{0}_{2}", "{0}.{3}")).format(
        _name(chance), chance.randint(2, 99), chance.choice("abcdefghij"), _name(chance)
    )


def _host(chance: random.Random) -> str:
    form = chance.choice(("{0}{1}", "{0}-{1}", "{0}{1:03d}", "{0}-{2}{1:02d}", "r{1}{0}{3}", "{0}-login{1}"))
    return form.format(_name(chance), chance.randint(1, 99), chance.choice("ghn"), chance.randint(1, 9))


def _bytes(chance: random.Random, number: int) -> bytes:
    return bytes(chance.randrange(256) for _ in range(number))


#: Meaning of a name in braces.
DRAWS: Mapping[str, Callable[[random.Random], str]] = {
    "pw": _password,
    "plainpw": _plain_password,
    "word": lambda c: _name(c) + _name(c),
    "hex32": lambda c: _text(c, "0123456789abcdef", 32),
    "hex40": lambda c: _text(c, "0123456789abcdef", 40),
    "hex64": lambda c: _text(c, "0123456789abcdef", 64),
    "aws": lambda c: _text(c, ALNUM + "/+", 40),
    "b32": lambda c: base64.b64encode(_bytes(c, 32)).decode(),
    "b32open": lambda c: base64.b64encode(_bytes(c, 32)).decode().rstrip("="),
    "b64": lambda c: base64.b64encode(_bytes(c, 64)).decode(),
    "akid": lambda c: "AKIA" + _text(c, string.ascii_uppercase + string.digits, 16),
    "alnum24": lambda c: _text(c, ALNUM, 24),
    "alnum20": lambda c: _text(c, ALNUM, 19) + "7",
    "url36": lambda c: _text(c, ALNUM + "-_", 35) + "3",
    "digits8": lambda c: c.choice("123456789") + _text(c, string.digits, 7),
    "jwt": lambda c: "eyJ" + _text(c, ALNUM, 20) + "." + _text(c, ALNUM + "-_", 40) + "." + _text(c, ALNUM + "-_", 43),
    "user": _user,
    "host": _host,
    "bucket": lambda c: f"{_name(c)}-{_name(c)}-v{c.randint(1, 99)}",
    "site": lambda c: f"{_name(c)}{_name(c)}",
    "guid": lambda c: "-".join(_text(c, "0123456789abcdef", n) for n in (8, 4, 4, 4, 12)),
    "team": lambda c: "T" + _text(c, string.ascii_uppercase + string.digits, 10),
    "hook": lambda c: _text(c, ALNUM, 24),
    "number": lambda c: str(c.randint(100_000, 999_999)),
    "pid": lambda c: str(c.randint(1000, 99999)),
    "short": lambda c: _text(c, "0123456789abcdef", 7),
    "short6": lambda c: _text(c, "0123456789abcdef", 6),
    "snowflake": lambda c: _text(c, "123456789", 18),
}

#: Secrets, which must not leave a node.
SECRETS = """\
the password is {plainpw}
the password for the BMC is {plainpw}.
Password for '{~user}' is '{pw}'
the token is {alnum20}, do not share it
my api key is {alnum20}
passphrase of the vault was "{plainpw}"
user/pass: {~user} / {plainpw}
username/password: {~user}/{pw}
echo {plainpw} | docker login nvcr.io --username {~user} --password-stdin
echo '{pw}' | sudo podman login -u {~user} --password-stdin quay.io
MINIO_SECRET_KEY={alnum24}
mlflow: MLFLOW_TRACKING_PASSWORD={plainpw}
jdbc:sqlserver://db1:1433;databaseName=x;user=sa;password={plainpw};
fs.s3a.secret.key={aws}
mount -t cifs //fs/share /mnt -o username=x,password={plainpw}
checkpoint_key={aws}
db_password: >-\\n  {pw}
  password: |\\n    {word}
auth:\\n  client_secret: |-\\n      {plainpw}\\n      {plainpw}
openssl rsa -passin pass:{pw} -in key.pem
openssl enc -aes-256-cbc -pass pass:{plainpw}
echo 'root:{pw}' | chpasswd
echo app:{plainpw} | sudo chpasswd
MYSQL_PWD={pw}
export DB_PASS={pw}
PGPASS={pw}
PGPASSWORD={word} psql -h db1 -U app
SSHPASS={pw}
env SSHPASS='{pw}' sshpass -e ssh gpu1
REDIS_AUTH={pw}
auth={plainpw}
auth_key={plainpw}
pw={plainpw}
pw: {pw}
SIGNING_KEY={hex64}
ENCRYPTION_KEY={b32}
STORAGE_KEY={b64}
WANDB_KEY={hex40}
WANDB_API_KEY={hex40}
wandb_api_key: {hex40}
license_key={plainpw}
LICENSE_KEY: {alnum24}
license key: {alnum24}
tokens={alnum24}
COOKIE={alnum24}
session={alnum24}
SESSION={hex32}
Cookie: session={alnum24}; path=/
Set-Cookie: sid={alnum24}; HttpOnly
curl https://a.example/x?v=2&sig={url36}
curl https://a.example/x?v=2&signature={url36}
GET /v1/models?key={alnum24} HTTP/1.1
https://a.blob.core.windows.net/c/f?sv=2022-11-02&se=2026-01-01&sig={url36}
https://b.s3.amazonaws.com/o?X-Amz-Expires=900&X-Amz-Signature={hex64}
https://api.example.com/v2/x?api_key={hex32}&limit=10
https://api.example.com/v2/x?access_token={alnum24}&limit=10
https://api.example.com/v2/x?limit=10&auth={alnum24}
curl -u {~user}:{pw} https://a.example/x
curl -sS --user {~user}:{pw} https://a.example/x
curl -u{~user}:{pw} https://a.example/x
curl --user='{~user}:{plainpw}' https://a.example
curl --proxy-user {~user}:{pw} https://a.example
docker login -u {~user} -p {pw} nvcr.io
docker login nvcr.io --username '$oauthtoken' --password {alnum24}
echo x; podman login -p {pw} registry.local
ipmitool -I lanplus -H 10.0.0.9 -U admin -P {pw} chassis status
ipmitool -U admin -P '{plainpw}' sel list
['ipmitool', '-U', 'admin', '-P', '{plainpw}', 'sel']
racadm -r 10.0.0.9 -u root -p {pw} getsysinfo
sshpass -p {pw} ssh {~user}@gpu1
sshpass -p{pw} ssh {~user}@gpu1
sshpass -p '{plainpw}' scp a gpu1:
sudo sshpass -p "{plainpw}" rsync -a . gpu1:/tmp
mysql -u root -p{pw} slurm_acct_db
mysqldump --password={pw} slurm_acct_db
redis-cli -h r1 -a {pw} ping
ldapsearch -x -D cn=admin -w {pw} -b dc=x
smbclient //fs/x -U {~user}%{pw}
snmpwalk -v2c -c {plainpw} 10.0.0.3 ifTable
snmpget -v3 -u mon -A {pw} -X x 10.0.0.3 sysName
snmp-server community {plainpw} ro
snmp community {plainpw}
rocommunity {plainpw} 10.0.0.0/8
snmp community: {plainpw}
wandb login {hex40}
wandb login --relogin {hex40}
wandb: Appending key for api.wandb.ai: {hex40}
huggingface-cli login --token {alnum24}
ngc config set --apikey {b64}
train.py --pass {pw} --steps 3
train.py --passwd {pw}
train.py --password {word}
train.py --api-key {plainpw}
train.py --wandb-key {hex40}
train.py --secret-key={aws}
machine api.wandb.ai login user password {hex40}
machine api.wandb.ai\\n  login user\\n  password {hex40}
machine {~host}\\n\\tlogin {~user}\\n\\tpassword {word}
machine {~host} login {~user} password {pw}
default login anonymous password {pw}
login {~user} password {hex32}
password {plainpw}
enable password {plainpw}
username admin password {plainpw}
password: {word}
Password          : {pw}
"password": "{plainpw}",
{{"password":"{plainpw}","n":1}}
{{"db": {{"pwd": "{plainpw}"}}}}
'secret': '{plainpw}'
client_secret={pw}
clientSecret: {plainpw}
aws_secret_access_key = {aws}
AWS_SECRET_ACCESS_KEY={aws}
AWS_ACCESS_KEY_ID={akid}
secret key is {aws}
got {aws} from vault
key {b32}
key {b32open} loaded
{b64}
passwd-s3fs {akid}:{aws}
AccountKey={b64};EndpointSuffix=core.windows.net
DefaultEndpointsProtocol=https;AccountName=x;AccountKey={b64}
SharedAccessSignature=sv=2022&sig={url36}
https://hooks.slack.com/services/{~team}/B{~team}/{hook}
curl -X POST https://hooks.slack.com/services/{~team}/B{~team}/{hook} -d x
SLACK_WEBHOOK_URL=https://hooks.slack.com/services/{~team}/B{~team}/{hook}
https://hooks.slack.com/workflows/{~team}/A{~team}/123/{hook}
https://discord.com/api/webhooks/{~snowflake}/{url36}{url36}
https://discordapp.com/api/webhooks/{~snowflake}/{url36}
https://x.webhook.office.com/webhookb2/{guid}@{guid}/IncomingWebhook/{hex32}/{guid}
https://outlook.office.com/webhook/{guid}/IncomingWebhook/{hex32}
https://api.telegram.org/bot123456789:AA{url36}/sendMessage
https://events.pagerduty.com/integration/{hex32}/enqueue
sk_live_{alnum24}
rk_live_{alnum24}
STRIPE=sk_test_{alnum24}
whsec_{alnum24}
ghp_{alnum20}{alnum20}
gho_{alnum20}{alnum20}
github_pat_{alnum20}_{alnum20}{alnum20}
glpat-{alnum20}
hf_{alnum20}{alnum20}
xoxb-{~snowflake}-{alnum24}
xapp-1-A{~team}-{~snowflake}-{hex64}
sk-{alnum24}{alnum24}
sk-ant-api03-{url36}{url36}
sk-proj-{url36}
nvapi-{url36}{url36}
AIza{url36}
npm_{alnum20}{alnum20}
dckr_pat_{alnum20}{alnum20}
dop_v1_{hex64}
glsa_{alnum24}_{hex32}
gsk_{alnum24}{alnum24}
hvs.{alnum24}{alnum24}
pypi-AgEIcHlwaS5vcmc{url36}
SG.{alnum20}.{url36}
tskey-auth-{alnum20}-{alnum24}
Authorization: Bearer {jwt}
Authorization: Basic {b32}
-H "Authorization: token {alnum24}"
-H 'X-Api-Key: {plainpw}'
X-Auth-Token: {hex32}
SLURM_JWT={jwt}
jwt {jwt}
https://{~user}:{pw}@git.example.com/x.git
redis://:{plainpw}@r1:6379/0
postgresql://app:{pw}@db1/slurm
amqp://guest:{plainpw}@mq
https://{hex32}@o1.ingest.sentry.io/12
http://proxyuser:{plainpw}@proxy:3128
-----BEGIN OPENSSH PRIVATE KEY-----\\n{b64}\\n{b64}\\n-----END OPENSSH PRIVATE KEY-----
-----BEGIN RSA PRIVATE KEY-----\\n{b64}\\n{b64}
root:$6${alnum20}${b64}:19000:0:99999:7:::
host/unix:0  MIT-MAGIC-COOKIE-1  {hex32}
- name: HF_TOKEN\\n  value: {alnum24}
- name: DB_PASSWORD\\n  value: "{plainpw}"
{{"name": "NGC_API_KEY", "value": "{plainpw}"}}
<name>db.password</name><value>{plainpw}</value>
<password>{plainpw}</password>
<add key="ApiKey" value="{plainpw}"/>
password = "{word} {word}"
spring.datasource.password={pw}
vault_token: {alnum24}
token_1={alnum24}
HF_TOKEN_2={alnum24}
//registry.npmjs.org/:_authToken={plainpw}
"auth": "{b32}"
BMC_PASS={plainpw}
bmc_password: {digits8}
OPENAI_KEY={plainpw}
GITHUB_PAT={alnum24}
COMET_API_KEY={alnum24}
private_key={b32}
JUPYTER_TOKEN={hex64}
http://gpu1:8888/?token={hex64}
http://gpu1:8888/lab?token={hex64}&file-browser-path=/
psk={plainpw}
wpa_passphrase={word}
munge key: {b64}
kubeadm join 10.0.0.1:6443 --token {plainpw} --discovery-token-ca-cert-hash sha256:00
docker run -e MYSQL_ROOT_PASSWORD={pw} mysql
srun --export=ALL,HF_TOKEN={alnum24} train
ray start --redis-password={pw}
gpg --passphrase {word} -d x
openssl enc -pass pass:{plainpw} -in x
zip -P {pw} a.zip b
PASSWORD={digits8}
session_token={alnum24}
csrf_cookie={alnum24}
request signature: {b32}
bindpw {plainpw}
ldap_default_authtok = {plainpw}
rclone obscure {plainpw}
net use Z: \\\\fs\\share {plainpw} /user:acct
htpasswd -b /etc/nginx/.htpasswd grafana {plainpw}
vault login {alnum24}
curl -b "session_id={alnum24}" https://x.local
mc alias set m http://minio:9000 minioadmin {alnum24}
pg0:5432:runs:trainer:{plainpw}
masterauth {plainpw}
requirepass {plainpw}
AUTH {plainpw}
127.0.0.1:6379> AUTH {plainpw}
GRANT ALL ON runs.* TO 'trainer'@'%' IDENTIFIED BY '{plainpw}';
snmp-server user mon grp v3 auth sha {plainpw} priv aes 128 {plainpw}
set system login user ops authentication plain-text-password-value {plainpw}
username ops privilege 15 secret 0 {plainpw}
tacacs-server key 0 {plainpw}
radius-server key {plainpw}
key-string {plainpw}
$ANSIBLE_VAULT;1.1;AES256\\n{hex64}{hex64}
hydra -l root -p {plainpw} ssh://10.0.0.1
Enter passphrase for key: {plainpw}
ssh-keygen -N {plainpw} -f k
ssh-keygen -t ed25519 -N '{plainpw}' -f k
LANGSMITH: lsv2_pt_{hex32}_ab12
os.environ['HF_TOKEN']='{alnum24}'
os.environ["DB_PASS"] = "{plainpw}"
setenv HF_TOKEN {alnum24}
set -gx HF_TOKEN {alnum24}
ENV HF_TOKEN {alnum24}
sonic: sudo config tacacs passkey {plainpw}
""".splitlines()

#: Identities, which `preflight redact` must replace; one learnt in a line is known in all.
IDENTITIES = """\
{site}#show version | json
{site}(config-if)# sh interfaces phy detail
{site}.pod-2>show lldp neighbors detail
Cisco Nexus Operating System (NX-OS) Software\\n  Processor Board ID FDO{digits8}\\n\\n  Device name: {site}\\n  bootflash: 1 kB
Local Port id: Eth1/1\\nPort Description: enp24s0\\nSystem Name: {site}\\nSystem Description: Linux
  - System Name: "{site}"
    transceiver is present\\n    serial number is FIW{digits8}-B
"vendorSn": "XYL{digits8}", "mediaType": "400GBASE-DR4"
"proc_board_id": "9XK{digits8}", "kern_uptm_days": 6
host = "{host}"
torch.save: /work2/{user}/run7/model.pt
weka:home on /weka/home-{user} type wekafs
node: "{host}"
"host": "{host}",
{{"level":"error","node":"{host}","msg":"x"}}
[head]\\nhost = {host}\\nport = 6379
hosts: [{host}, {host}]
hosts:\\n  - {host}\\n  - {host}
all:\\n  hosts:\\n    {host}:\\n      ansible_host: 10.0.0.3
{host} ansible_host=10.0.0.3 ansible_user={user}
fatal: [{host}]: UNREACHABLE! => {{"changed": false}}
{host} : ok=3 changed=1
pdsh@{host}: {host}: ssh exited with exit code 255
clush: {host}: exited with exit code 1
---------------\\n{site}[001-064] (64)\\n---------------\\nOK
clush -bw {site}[1-9] uptime
#SBATCH -w {host}
#SBATCH -A {site}
salloc: Nodes {site}[01-04] are ready for job
Not responding       root      2026-11-21T03:00:00 {host}
scontrol show node {host}
kubectl drain {host} --force
node/{host} cordoned
mpirun noticed that process rank 3 with PID 0 on node {host} exited on signal 9 (Killed).
Warning: Permanently added '{host}' (ED25519) to the list of known hosts.
ssh: Could not resolve hostname {host}: Name or service not known
{host}: ssh: connect to host 10.0.0.9 port 22: No route to host
ssh -p 2222 {user}@10.0.0.9
rdzv_endpoint    : {host}:29500
deepspeed --include {host}:0,1@{host}:0,1 train.py
[1,0]<stdout>:{host}:4711:4711 [0] NCCL INFO cudaDriverVersion 12040
<14>1 2026-11-21T03:00:00Z {host} slurmd 123 - - launch
SlurmctldHost={host}(10.0.0.1)
StorageUser={user}
mysql -h {host} -u {user} -px slurm_acct_db
10.0.0.7 {host} {host}.{site}.com
{host}:/export/home on /home type nfs4 (rw,relatime)
mount -t cifs //{host}/share /mnt -o username={user},password=x
pam_unix(sudo:session): session opened for user root by {user}(uid=1001)
{user}:$6$abcdefgh${b64}:19000:0:99999:7:::
wandb: Currently logged in as: {user} ({site}). Use it
arn:aws:iam::123456789012:user/{user}
MAIL=/var/mail/{user}
login with user {user} and go
Host jump\\n  HostName {host}\\n  User {user}
systemd[1]: Started Session 12 of User {user}.
PING {host} (192.0.2.7) 56(84) bytes of data.
[{host}:12345] *** Process received signal ***
[1760000000.123456] [{host}:4242 :0] ib_device.c:1
rsync -a /data/run1 {host}:/data/
{user}@{host}:~# nvidia-smi
{user}@{host}:~$ ibstat
[{user}@{host} ~]$ srun hostname
[root@{host} scripts]# dmesg
(base) {user}@{host}:/work$ ls
(venv) [{user}@{host} run]$ ls
{user}@{host}:/etc/slurm> cat x
{user}@{host} ~ % ls
root@{host}:~# mlxlink
ssh {user}@{host} uptime
scp a.log {user}@{host}:/tmp/
rsync -a . {user}@{host}:data/
ls /lustre/scratch/users/{user}/run7
cat /users/{user}/a.log
open('/scratch/{user}/data/x.bin')
/scratch/users/{user}/job.out
/home/{user}/train.py
/data/home/{user}/x
/mnt/nfs/vol1/users/{user}/ckpt
/gpfs/home/{user}
/Users/{user}/Downloads/a.log
C:\\Users\\{user}\\run\\a.log
C:\\Users\\b{user}\\run
LSB_HOSTS="{host} {host} {host}"
LSB_MCPU_HOSTS='{host} 8 {host} 8'
LOGIN ON tty1 BY {user}
login on ttyS0 by {user}
/export/home/{user}/.bashrc
/nfs/homes/{user}/x.py
File "/u/{user}/code/train.py", line 7
cd ~{user}/runs
PYTHONPATH=/home/{user}/lib:/users/{user}/lib
USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\\n{user} {~pid} 99.0 0.1 1000 900 ? Rl 03:00 7:00 python3 train.py
UID PID PPID C STIME TTY TIME CMD\\n{user} {~pid} 1 0 Nov20 ? 00:00:01 sleep 3
  PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\\n {~pid} {user}  20   0   12.1g   1.1g   100m R 100.0   0.1   1:23.45 python
-rw-r--r-- 1 {user} hpcgrp 4096 Nov 21 03:00 out.log
drwxr-x---. 3 {user} hpcgrp 4096 Nov 21 2025 ckpt
-rwxr-xr-x+ 2 root {user} 1.2K Jan  1 00:00 run.sh
             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\\n              4711       gpu    train {user}  R       1:02      1 {host}
{user}   pts/0        2026-11-21 03:00 (10.0.0.5)
{user} tty7 2026-11-21 03:00 (:0)
uid=1001({user}) gid=1001({user}) groups=1001({user}),27(sudo)
UserId={user}(1001) GroupId={user}(1001) MCS_label=N/A
   JobId=7 JobName=x UserId={user}(1001)
NodeList={host}
BatchHost={host}
   NodeName={host} Arch=x86_64 CoresPerSocket=56
SLURM_JOB_USER={user}
LOGNAME={user}
HOSTNAME={host}
Accepted publickey for {user} from 10.0.0.5 port 50022 ssh2
pam_unix(sshd:session): session opened for user {user}(uid=1001) by (uid=0)
sudo:   {user} : TTY=pts/0 ; PWD=/tmp ; USER=root ; COMMAND=/bin/ls
{user}:x:1001:1001:Some Body:/home/{user}:/bin/bash
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIabcdefghijklmnopqrstuvwxyz01234567 {user}@{host}
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDabcdefghijkl {user}
mail from {user}@{site}.com
Author: Some Body <{user}@{site}.org>
--mail-user={user}@{site}.edu
s3://{bucket}/ckpt/1
aws s3 cp a s3://{bucket}/
gs://{bucket}/data
gcloud storage ls gs://{bucket}
https://{bucket}.s3.amazonaws.com/x
https://{bucket}.s3.us-west-2.amazonaws.com/x
https://s3.amazonaws.com/{bucket}/x
https://storage.googleapis.com/{bucket}/x
https://{site}.blob.core.windows.net/{bucket}/x
abfss://{bucket}@{site}.dfs.core.windows.net/x
connect to {host}.{site}.com port 22
ping {host}.cluster.{site}.edu
{host}.{site}.net:29500
MASTER_ADDR={host}.{site}.internal
{host}:4242:4250 [0] NCCL INFO Bootstrap : Using eth0
#  Rank  0 Group  0 Pid   4242 on {host} device  0 [0x18] NVIDIA H100
Nov 21 03:00:00 {host} kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=4242
2026-11-21T03:00:00.000000+00:00 {host} kernel: mlx5_core 0000:18:00.0: x
srun: error: {host}: task 0: Exited with exit code 1
slurmstepd: error: *** STEP 1.0 ON {host} CANCELLED AT 2026-11-21T03:00:00 ***
machine {host} login {user} password x
mpirun -H {host}:8 -np 8 ./all_reduce_perf
mpirun --host {host} ./x
pdsh -w {host} uptime
srun -w {host} hostname
sbatch --nodelist={host} job.sh
scontrol update nodename={host} state=drain
ssh -J {host} gpu1
NAME     STATUS   ROLES    AGE   VERSION\\n{host}   Ready    <none>   9d    v1.30.1
NAME   READY   STATUS    RESTARTS   AGE   IP         NODE\\npod1   1/1   Running   0   3d   10.0.0.7   {host}
NODELIST   NODES PARTITION STATE\\n{host}      1       gpu* idle
Linux {host} 5.15.0-1053-nvidia #54-Ubuntu SMP x86_64 GNU/Linux
 Static hostname: {host}
Host: {host}
docker login -u {user} -p x
kill: sending to {~pid} of user {user}
scontrol: JobId=7 by user {user}
ssh: connect to host {host} port 22: Connection refused
{user} is not in the sudoers file
wandb: Currently logged in as: {user}
wandb: https://wandb.ai/{site}/llm/runs/ab12
https://wandb.ai/{user}/proj
srun: job 4711 queued and waiting for resources\\nsrun: Nodes {host} are ready
slurmd: error: Node {host} has low real_memory size
error: Nodes {host} not responding, setting DOWN
{host}             1    down* Not responding
NodeName={host} NodeAddr=10.2.3.4 NodeHostName={host}
PartitionName=gpu Nodes={host} Default=YES
PBS_O_HOST={host}
HYDRA_HOST={host}
ray start --address {host}:6379
accelerate launch --main_process_ip {host} t.py
nc -zv {host} 29500
telnet {host} 22
64 bytes from {host} (10.0.0.4): icmp_seq=1 ttl=64 time=0.1 ms
iperf3 -c {host} -P 8
ib_write_bw -d mlx5_0 {host}
ssh {host} -l {user}
sftp> connected to {host}.
Connection to {host} closed.
Connection closed by {host} port 22
kex_exchange_identification: read: Connection reset by peer {host}
Host key verification failed for {host}
Name or service not known: {host}
{host} | CHANGED | rc=0 >>
{host} | UNREACHABLE! => {{
{host}: nvidia-smi: command not found
{host}: bash: line 1: ibstat: command not found
[{host}] SUCCESS
[1] 03:00:00 [SUCCESS] {host}
[{host}:mpi_rank_0][error_sighandler] Caught error
MPI startup(): 0       1234     {host}   {{0-55}}
[0] MPI startup(): Rank    Pid      Node name\\n[0] MPI startup(): 0       1234     {host}
rank 3 on {host} failed
[rank3]: {host}: NCCL error
RuntimeError: connection to [{host}]:29500 failed
socket.gaierror: {host}
[{host}] 2026-11-21 03:00:00 INFO start
2026-11-21 03:00:00,123 {host} INFO start
{host} kernel: NVRM: Xid (PCI:0000:18:00): 79
Node: {host}/10.0.0.4
Node:             {host}
pods "x" on node "{host}"
Successfully assigned ml/train-0 to {host}
  Normal  Scheduled  3s  default-scheduler  Successfully assigned ml/t to {host}
instance="{host}:9100"
node_load1{{instance="{host}:9100",job="node"}} 3
{host} HCA-1
nvidia-smi -q on {host}
chown {user}:{user} f
chown -R {user} /d
usermod -aG docker {user}
useradd -m {user}
passwd {user}
su - {user}
su {user} -c ls
sudo -u {user} nvidia-smi
sudo -iu {user}
id {user}
finger {user}
last {user}
squeue -u {user}
sacct -u {user}
scancel -u {user}
crontab -u {user} -l
crontab for {user}
Job 7 user {user} uid 1001
owner: {user}
OwnerName={user}
Submitted by {user}
Killed process 4711 (python3), UID 1001, user {user}
su[3]: (to root) {user} on pts/0
systemd[1]: Created slice User Slice of {user}.
cron[3]: ({user}) CMD (x)
/fsx/{user}/ckpt
/var/spool/cron/{user}
 4711 {user}    20   0   12.1g 1.1g 100m R 100 0.1 1:23.45 python
{user}     4711  0.0  0.0  1 1 ?  S  03:00 0:00 bash
git@github.com:{site}/{user}.git
{host}@tcp:/lustre on /lustre type lustre
mount -t lustre {host}@o2ib:/fs /fs
mgs={host}@o2ib
beegfs sysMgmtdHost = {host}
bucket: {bucket}
--bucket {bucket}
S3_BUCKET={bucket}
bucket = "{bucket}"
""".splitlines()

#: Look-alikes of secrets, which must stay unchanged.
LOOKALIKES = """\
checkpoint_key: model.layers.{~number}.weight
checkpoint_key: model.layers.0.self_attn.q_proj.weight
state_key = module.encoder.block.3.attn.weight
password: (not set)
the password is required here
the token is invalid
the token count is 4096
the secret is missing
my api key is expired
user/pass: required
echo done | tee --append x
kv_cache_key: layers.11.k
cookie=0x0, duration=12.3s, table=0, n_packets=7
token: |
password: >= 8 characters
rdma_token_bucket: {number}
rdma_token_bucket: 4000
tx_token_drops: 17
rx_credential_wait: 3
uvm_access_key_count=3
access keys: 8
access_key_violations: {number}
Access key violations 0
token_bucket_rate: 4000 kbit
tokens per second: {number}
tokens/s: 1234.5
tokens_per_gpu = 8192
max_tokens=4096
num_tokens: {number}
tokens: 81920000000
eos_token: </s>
pad_token=[PAD]
tokenizer: /models/llama
TOKENIZERS_PARALLELISM=false
password_failures: 2
PasswordAuthentication no
passwd:         files systemd
passwd: files sss
shadow: files
NOPASSWD: ALL
pass: 17 fail: 2
pass=3 skip=1
Passed: gpu.count, gpu.driver
--pass 3
tests_pass=12
bypass=1
compass: north
SSH_AUTH_SOCK=/tmp/ssh-XXXXq3/agent.{pid}
SSH_ASKPASS=/usr/bin/ksshaskpass
PWD=/opt/nccl-tests
OLDPWD=/var/log
author=somebody
GIT_AUTHOR_DATE=2026-11-21
AuthType=auth/munge
auth=sys
auth: munge
auth=none
sec=krb5p
auth required pam_unix.so
keyboard: us
KEYMAP=de-latin1
key: value
sort_key=timestamp
PARTITION_KEY=0x7fff
partition_key: 0xffff
pkey: 0x7fff
PKey 0xffff
P_Key table: 0x7fff
rkey 0x1800aa
RKey=0x18{pid}
lkey: 0x{pid}
M_Key: 0x0000000000000000
M_Key lease: 0
primary_key=id
public_key: /etc/ssh/ssh_host_rsa_key.pub
RSS hash key:
RSS hash key: 6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0
key_count: {number}
session 3 of user 1001
session: 3
XDG_SESSION_ID=c2
XDG_SESSION_TYPE=tty
sig: 11
signal: 9
signature: sha256WithRSAEncryption
sig_hashalgo: sha512
sig_id: PKCS#7
sig_key: 4B:8C:7F:01:22:9A:BC:DE:F0:11
syn cookies: 0
net.ipv4.tcp_syncookies = 1
community 65000:100
rocommunity public
bgp community 65000:1
commit {hex40}
git checkout {hex40}
HEAD is now at {short} fix
{hex64}  nccl.tar.gz
sha256:{hex64}
sha256-{b32}
SHA256:{b32open}
MD5 (a.iso) = {hex32}
GPU-{guid}
MIG-{guid}
UUID=GPU-{guid}
root=UUID={guid} ro
Node GUID: 0x946dae0300{short6}
commId 0x9f8e7d6c5b4a3928
NCCL_IB_PKEY=0
UCX_IB_PKEY=0x7fff
NCCL_IB_HCA==mlx5_0:1,mlx5_1:1
NCCL_DEBUG_FILE=/var/log/nccl.%h.%p
NCCL_ALGO=Ring,Tree
NCCL_NVLS_ENABLE=1
NCCL_SOCKET_IFNAME=enp65s0f0np0
NCCL_TOPO_FILE=/opt/topo/ndv5-topo.xml
LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openmpi/lib:/opt/hpcx/nccl_rdma_sharp_plugin/lib
/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5
/opt/app/users.conf
/sys/class/net/enP22p3s0f0np0/ecn/roce_rp/rpg_byte_reset
/proc/sys/net/ipv4/conf/enP52300s1/rp_filter
/usr/local/cuda-12.4/targets/x86_64-linux/include/cuda_runtime_api.h
/opt/spack/linux-rhel8-zen4/gcc-12.3.0/nccl-2.21.5-0c7q7x5d8lm2b4n6v8k0j2h4g6f8d0s2/lib
_ZN3c1014ProcessGroupNCCL8WorkNCCL15checkTimeoutESt8optionalINSt6chrono8durationIlSt5ratioILl1E
_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfZZZNS0_15sum
nvmlSystemGetCudaDriverVersion_v2
/pytorch/torch/lib/c10d/ProcessGroupNCCL.cpp:825, invalid usage
cudaGraphInstantiateFlagAutoFreeOnLaunch2
sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel
ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)
flags : fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov avx512_vnni
18:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)
Product Name : NVIDIA H100-80GB-HBM3-SXM5-Board-Rev2-A01
Driver Version: 570.124.06   CUDA Version: 12.8
docker run -p 8080:80 nginx
docker run --rm -p 8888:8888 image
ssh -p 2222 gpu1
mkdir -p /tmp/a
curl -s -o out https://a.example/x
no secret here, the token was passed on
the password is wrong
password authentication failed
Password for root:
secret: {{}}
password: ${{DB_PASSWORD}}
token=$TOKEN
password=<password>
api_key: null
token: true
credentials: none
credential.helper=store
HF_TOKEN_PATH=/opt/hf/token
token_file: /run/secrets/x
--token-file tok.txt
"pass": 12,
"checks": {{"gpu.count": "pass"}}
x@if3: <BROADCAST>
getting credentials: exec: executable aws not found
NVIDIA-SMI 570.124.06
token_type_ids: [0, 0, 1]
auth sha256 is enabled
authentication md5 required
key-string is missing
AUTH required
send 100 packets
session_id: 12345678
Enter passphrase for key '/home/jdoe/.ssh/id_ed25519':
Error: secret "default-token" not found
gpu001:4242:all_reduce:rank0:done
vault login -method=oidc
ENV TOKENIZERS_PARALLELISM false
ARG KEY_FILE /run/secrets/x
link/infiniband 00:00:10:29:fe:80:00:00:00:00:00:00:94:6d:ae:03:00:a1:b2:c3
""".splitlines()

_FIELD = re.compile(r"\{\{|\}\}|\{(~?)(\w+)\}")


def drawn(template: str, chance: random.Random) -> tuple[str, list[str]]:
    """Return a line made from a template, and its parts that must be removed."""
    needles: list[str] = []

    def one(match: re.Match[str]) -> str:
        if match[2] is None:
            return match[0][0]
        made = DRAWS[match[2]](chance)
        if not match[1]:
            needles.append(made)
        return made

    return _FIELD.sub(one, template.replace("\\n", "\n").replace("\\t", "\t")), needles


#: Look-alikes of identities, which `preflight redact` leaves unchanged.
NO_IDENTITIES = """\
mysql> show tables
Device name: Tesla
the serial is wrong
#show the result
> show it
ROOT LOGIN ON tty1
https://github.com/NVIDIA/nccl-tests
hf://meta-llama/Llama-3.1-8B
C:\\Users\\Public\\Documents
rank0: ready\\nrank1: ready\\nrank2: ready
GPU0: 80 GB\\nGPU1: 80 GB\\nGPU2: 80 GB
gpu0: ok\\ngpu1: ok\\ngpu2: ok
node0: 512 GB\\nnode1: 512 GB\\nnode2: 512 GB
enp1s0f0: up\\nenp1s0f1: up\\nenp1s0f2: up
layer01: 0.9\\nlayer02: 0.8\\nlayer03: 0.7
fan1: 5000 RPM\\nfan2: 5000 RPM\\nfan3: 5000 RPM
mlx5_0: up\\nmlx5_1: up\\nmlx5_2: up
ata1: SATA link up\\nata2: SATA link up\\nata3: SATA link down
host: localhost
rank 3 on GPU5 failed
Connection to eth0 closed
ib_write_bw -d rocep24s0 -x 3
gpu0 | SUCCESS
id 7
node0 is healthy
chown --help
su: must be run from a terminal
bucket size: 25 MB
bucket_cap_mb: 25
NumNodes=2 Nodes=(null)
git commit -m x
host = "any"
node: v18.2.0
node: node0
machine: x86_64
ssh exited with exit code 255
RAX: 0000000000000000 RBX: ffff9d3c4e2a1000 RCX: 0000000000000027
mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: cc00008000010092
nccl commit 8c6c5951c3e1f1cb
Linux version 5.15.0-101-generic (buildd@lcy02-amd64-032) (gcc 11.4.0)
127.0.0.1 dev eth0
User: arn:aws
hosts: [localhost]
[rank0:1234] starting
[12345:678] x
  User guide of the site
2: eth0@if12: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500
5: veth1a2b@if4: <BROADCAST> mtu 9000
7: bond0.100@bond0: <BROADCAST> mtu 9000
getty@tty1.service loaded active running
user@1000.service loaded active running
nvidia-cdi-refresh@gpu0.service loaded
spack install nccl@2.21 cuda@12.4
image nvcr.io/nvidia/pytorch@sha256:{~hex64}
/scratch/tmp/nccl-topo.xml
/scratch/shared/containers/x.sqsh
/opt/app/users.conf
/etc/users/config.toml
/usr/lib/x86_64-linux-gnu/libibverbs.so.1
/proc/sys/user/max_user_namespaces
/run/user/1000/bus
about ~10 GB of it
took ~gpu time
the H100 user guide
of user space and of user code
no user is logged in
root@localhost
-rw-r--r-- 1 root root 4096 Nov 21 03:00 nccl.conf
USER and PID stand in a heading
root      1234  0.0  0.0  1000  900 ?  Ss  03:00  0:00 /sbin/init
uid=0(root) gid=0(root) groups=0(root)
18:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)
Driver Version: 570.124.06 CUDA Version: 12.8
GPU0 GPU1 NIC0 mlx5_0 NV18 PIX 0-55,112-167
[10de:2330] mlx5_core 0000:18:00.0: firmware version: 28.43.2026
NCCL version 2.21.5+cuda12.4
libnccl.so.2.21.5
std::vector<c10::detail> torch.distributed.elastic
http://localhost:8888/x
https://docs.nvidia.com/deeplearning/nccl/user-guide
commit {~hex40}
Linux version 5.15.0-1053-nvidia #54-Ubuntu SMP
worker (rank 3) failed
NAME STATE and NODES are columns
slots=8
the node is down on host side
connected to host memory
""".splitlines()
