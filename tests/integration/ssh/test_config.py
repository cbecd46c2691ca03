"""Settings in ssh_config and known_hosts of sites, tested with the real ``ssh -G`` and real host keys."""

from __future__ import annotations

import getpass
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from preflight.transport.errors import NoAnswer, TransportError
from preflight.transport.ssh import certificate, host_keys
from preflight.transport.ssh.config import HostConfig, SshConfig
from preflight.transport.ssh.host import HostSpec
from preflight.transport.ssh.paramiko_transport import SshOptions, SshTransport
from tests.integration.ssh.test_ssh import answered, collect, reason
from tests.support.sshfarm import Farm, View, keygen, public
from tests.support.sshfarm.marks import needs_farm, needs_ssh
from tests.support.stopwatch import Stopwatch

pytestmark = needs_ssh


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts for which ``ssh -G`` ran."""
    names: list[str] = []
    real = SshConfig._call

    def call(self: SshConfig, host: HostSpec, file: str = "", verbose: bool = False) -> object:
        if not file:
            names.append(host.name)
        return real(self, host, file, verbose)

    monkeypatch.setattr(SshConfig, "_call", call)
    return names


def write(folder: Path, text: str, name: str = "config") -> Path:
    path = folder / name
    path.write_text(text.replace("{folder}", str(folder)), encoding="utf-8")
    return path


def one_by_one(file: Path, hosts: list[str], user: str = "") -> dict[str, HostConfig]:
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(hosts, pool.map(lambda host: SshConfig(file, user).resolve_one(host), hosts), strict=True))


NODES = [f"gpu{number:03}" for number in (*range(1, 7), *range(11, 17), *range(20, 24))]
OTHERS = ["login1", "GPU007", "gpu007.example", "10.0.0.7", "admin@gpu008", "gpu009:2222", "fe80::1", "[fe80::2]:22"]

CONFIGS = {
    "empty": ("", 5),
    "one stanza for all": ("Host *\n User me\n IdentityFile ~/.ssh/%h\n ProxyJump gate\n", 5),
    "patterns": (
        "Host gpu01? !gpu013\n Port 2201\nHost gpu*\n User a\n IdentityFile {folder}/%r\nHost login?\n User b\n",
        9,
    ),
    "HostName template": ("Host gpu*\n HostName %h.cluster\n ProxyCommand nc -X %n %h %p\nHost *\n Port 9\n", 5),
    "HostNames for some": ("Host gpu001\n HostName 10.1.1.1\nHost gpu002 gpu003\n HostName storage-%h\n", 8),
    "two templates that agree on one": ("Host gpu*\n HostName %h\nHost login1\n HostName login1\n", 8),
    "values with the host's name": ("Host gpu*\n UserKnownHostsFile {folder}/known_%h\n", 40),
    "Include": ("Include {folder}/more\nHost *\n User late\n", 6),
    "Include inside a Host": ("Host gpu00?\n Include {folder}/more\nHost *\n User late\n", 8),
    "Match host": ("Match host gpu00*,!gpu005\n User m\nMatch originalhost gpu02*\n Port 88\nMatch all\n User z\n", 9),
    "Match host after HostName": ("Host gpu*\n HostName %h.x\nMatch host gpu00?.x\n User m\n", 40),
    "Match user": ("Match user admin\n Port 77\nMatch localuser nobody\n Port 78\n", 5),
    "Match exec": ('Match exec "test %h = gpu004"\n User picked\n', 40),
    "Match final": ("Match final host gpu02*\n User f\n", 7),
    "equals signs, quotes, case": ('HOST="gpu01*"\nuser = "quoted"\nhost gpu02*\nPORT=99\n', 7),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_hosts_share_a_call_only_if_it_makes_no_difference(tmp_path: Path, calls: list[str], name: str) -> None:
    text, most = CONFIGS[name]
    write(tmp_path, "Host gpu01*\n User included\n IdentityFile {folder}/included\n", "more")
    file, hosts = write(tmp_path, text), [*NODES, *OTHERS]
    found = SshConfig(file).resolve(hosts)
    count = len(calls)
    assert found == one_by_one(file, hosts)
    # each odd name of OTHERS is a separate stanza if user, port or case differs
    assert count <= most + 4


def test_a_thousand_hosts_cost_a_few_calls(tmp_path: Path, calls: list[str]) -> None:
    file = write(tmp_path, "Host gpu*\n HostName %h.cluster\n User me\nHost *\n ProxyJump gate\n")
    hosts = [f"gpu{number:04}" for number in range(1000)]
    watch = Stopwatch()
    found = SshConfig(file).resolve(hosts)
    assert len(calls) <= 3
    assert watch.seconds < 3
    assert {found[host].hostname for host in hosts} == {f"{host}.cluster" for host in hosts}


def test_settings_of_the_configuration_are_used(tmp_path: Path) -> None:
    text = """
        Host gpu001
          HostName 127.0.0.9
          Port 2022
          User operator
          IdentityFile {folder}/id_%r@%h
          IdentityFile ~/.ssh/other
          CertificateFile {folder}/cert-%n.pub
          IdentitiesOnly yes
          IdentityAgent "{folder}/agent socket"
          UserKnownHostsFile {folder}/known_%h "{folder}/known 2"
          GlobalKnownHostsFile none
          HostKeyAlias farm
          StrictHostKeyChecking accept-new
          ProxyJump gate1,me@gate2:2200
          Ciphers aes256-gcm@openssh.com,aes128-ctr
          AddressFamily inet
          GSSAPIAuthentication yes
          RemoteCommand none
          SetEnv A=1
        """
    config = SshConfig(write(tmp_path, text))
    found = config.resolve_one("gpu001")
    assert (found.hostname, found.port, found.user) == ("127.0.0.9", 2022, "operator")
    assert found.identity_files == (f"{tmp_path}/id_operator@127.0.0.9", str(Path.home() / ".ssh/other"))
    assert found.certificate_files == (f"{tmp_path}/cert-gpu001.pub",)
    assert found.identities_only
    assert found.agent == f"{tmp_path}/agent socket"
    assert found.known_hosts[0] == tmp_path / "known_127.0.0.9"
    assert (found.host_key_alias, found.strict, found.proxy_jump) == ("farm", False, "gate1,me@gate2:2200")
    assert found.ciphers == ("aes256-gcm@openssh.com", "aes128-ctr")
    assert not found.kex
    assert not found.macs
    assert "hosts with unknown keys are trusted" in " / ".join(config.warnings)
    assert found.beyond == ("SetEnv A=1",)  # without a Kerberos ticket, GSSAPI makes no difference


def test_the_command_line_decides_the_user(tmp_path: Path) -> None:
    file = write(tmp_path, "Match user admin\n Port 77\nHost *\n User someone\n")
    assert SshConfig(file, "admin").resolve_one("gpu001").port == 77
    assert SshConfig(file, "admin").resolve_one("root@gpu001").user == "root"
    assert SshConfig(file).resolve_one("gpu001").user == "someone"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Hots gpu*\n", "Bad configuration option: hots"),
        ("Host gpu*\n Port many\n", "Bad port 'many'"),
        (None, "cannot read"),
    ],
)
def test_an_invalid_configuration_ends_the_run_before_any_node_is_touched(
    tmp_path: Path, text: str | None, message: str
) -> None:
    file = tmp_path / "absent" if text is None else write(tmp_path, text)
    with pytest.raises(TransportError, match=message):
        SshTransport(SshOptions(file), ["gpu001"])


@pytest.mark.parametrize("name", ["", "-oProxyCommand=x", "a b", "a;b", "$(id)", "user@", "gpu001\n"])
def test_what_no_host_is_called(name: str) -> None:
    with pytest.raises(TransportError, match="is not the name of a host"):
        HostSpec.parse(name)


def test_without_openssh_what_is_not_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(
        tmp_path,
        "Include {folder}/more\nHost gpu*\n HostName %h.cluster\n User me\n ServerAliveInterval 5\n"
        " ProxyJump gate\n SetEnv A=1\n IdentityFile {folder}/id\n",
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    config = SshConfig(file)
    found = config.resolve(["gpu001", "login1"])
    assert found["gpu001"].hostname == "gpu001.cluster"
    assert (found["gpu001"].user, found["gpu001"].proxy_jump) == ("me", "gate")
    assert found["gpu001"].identity_files == (str(tmp_path / "id"),)
    assert found["login1"].user == getpass.getuser()
    assert found["login1"].known_hosts[0] == Path.home() / ".ssh/known_hosts"
    assert [warning.split(": ")[1].split()[0] for warning in config.warnings] == ["Include"]
    assert found["gpu001"].beyond == ("SetEnv A=1",)
    assert found["login1"].beyond == ()
    write(tmp_path, "Match host gpu* tagged x\n User y\n")
    with pytest.raises(TransportError, match="install the OpenSSH client"):
        SshConfig(file).resolve(["gpu001"])


# known_hosts, by names


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    kinds = {"old": "ed25519", "new": "ed25519", "rsa": "rsa", "ecdsa": "ecdsa", "authority": "ed25519"}
    return {name: keygen(folder / name, kind=kind) for name, kind in kinds.items()}


def blob(key: Path) -> bytes:
    return host_keys._parse(f"x {public(key)}".encode(), "").blob  # type: ignore[union-attr]


def judge(folder: Path, lines: str, key: Path, name: str = "gpu001", port: int = 22, strict: bool = True) -> str:
    """Return why a key is rejected; empty if it is accepted."""
    found = host_keys.HostKeys([write(folder, lines, "known_hosts"), folder / "absent"])
    try:
        host_keys.known(found, name, port, strict=strict).check(blob(key), time.time())
    except NoAnswer as refusal:
        return refusal.reason if refusal.phase == "host-key" else refusal.phase
    return ""


def test_names_in_known_hosts(tmp_path: Path, keys: dict[str, Path]) -> None:
    old, new = public(keys["old"]), keys["old"]
    for names, name, port in [
        ("gpu001", "gpu001", 22), ("GPU001,10.0.0.1", "gpu001", 22), ("gpu001,10.0.0.1", "10.0.0.1", 22),
        ("[gpu001]:2222", "gpu001", 2222), ("gpu001", "gpu001", 2222), ("gpu*,!gpu002", "gpu001", 22),
        ("*.x,gpu00?", "GPU001", 22), ("[gpu*]:2222", "gpu001", 2222), ("[gpu001]:22", "gpu001", 2022),
    ]:  # fmt: skip
        known = "" if names == "[gpu001]:22" else judge(tmp_path, f"# a comment\n\n{names} {old} me\n", new, name, port)
        assert known == "", (names, name, port)
    for names, name, port in [
        ("gpu002", "gpu001", 22),
        ("[gpu001]:2222", "gpu001", 22),
        ("gpu*,!gpu001", "gpu001", 22),
    ]:
        assert "the host key is unknown: no line for" in judge(tmp_path, f"{names} {old}\n", new, name, port)
    assert judge(tmp_path, "gpu001 ssh-ed25519 torn!\n@odd x y z\nshort\n\xff\xfe\n", new)


def test_hashed_names(tmp_path: Path, keys: dict[str, Path]) -> None:
    path = write(tmp_path, f"gpu001 {public(keys['old'])}\n[gpu002]:2222 {public(keys['old'])}\n", "known_hosts")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, capture_output=True)
    lines = path.read_text()
    assert lines.count("|1|") == 2
    assert judge(tmp_path, lines, keys["old"]) == ""
    assert judge(tmp_path, lines, keys["old"], "gpu002", 2222) == ""
    assert "no line for" in judge(tmp_path, lines, keys["old"], "gpu003")
    assert "has changed" in judge(tmp_path, lines, keys["new"])


def test_unknown_and_changed_keys_come_with_their_fix(tmp_path: Path, keys: dict[str, Path]) -> None:
    unknown = judge(tmp_path, "", keys["new"], "gpu001", 2222)
    assert f"then: ssh-keyscan -H -p 2222 gpu001 >> {tmp_path}/known_hosts" in unknown
    assert judge(tmp_path, "", keys["new"], strict=False) == ""
    changed = judge(tmp_path, f"\n[gpu001]:2222 {public(keys['old'])}\n", keys["new"], "gpu001", 2222, strict=False)
    assert f"{tmp_path}/known_hosts:2 has ssh-ed25519 SHA256:" in changed
    assert f"ssh-keygen -R '[gpu001]:2222' -f {tmp_path}/known_hosts" in changed
    assert host_keys.trust_command(["a", "b"]) == "ssh-keyscan -H a b >> ~/.ssh/known_hosts"
    renew = "for host in c; do ssh-keygen -R $host; done; ssh-keyscan -H c"
    assert host_keys.trust_command([], ["c"]).startswith(renew)
    assert host_keys.trust_command([]) == ""


KINDS = ("rsa", "ecdsa", "old")
SUBSETS = [tuple(kind for bit, kind in enumerate(KINDS) if number >> bit & 1) for number in range(8)]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("port", [22, 2222])
@pytest.mark.parametrize("names", ["gpu001", "gpu*,!gpu002", "hashed"])
@pytest.mark.parametrize("known", SUBSETS)
def test_a_key_of_another_type_is_a_changed_key(
    tmp_path: Path, keys: dict[str, Path], known: tuple[str, ...], names: str, port: int, strict: bool
) -> None:
    label = "gpu001" if port == 22 else f"[gpu001]:{port}"
    names = names.replace("gpu*", "[gpu*]:2222") if port != 22 else names
    lines = "".join(f"{label if names in ('gpu001', 'hashed') else names} {public(keys[kind])}\n" for kind in known)
    lines += f"gpu009 {public(keys['new'])}\n@cert-authority gpu001 {public(keys['authority'])}\n"
    if names == "hashed":
        path = write(tmp_path, lines, "hashed")
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, capture_output=True)
        lines = path.read_text()
    for shown in (*KINDS, "new"):
        refusal = judge(tmp_path, lines, keys[shown], port=port, strict=strict)
        if shown in known:
            assert refusal == ""
        elif known:
            assert refusal.startswith("the host key has changed: "), (known, shown)
        else:
            assert refusal.startswith("the host key is unknown: ") if strict else refusal == ""


def test_a_key_of_a_type_not_offered_is_not_called_changed(tmp_path: Path, keys: dict[str, Path]) -> None:
    found = host_keys.HostKeys([write(tmp_path, f"gpu001 {public(keys['rsa'])}\n", "known_hosts")])
    for strict in (True, False):
        known = host_keys.known(found, "gpu001", 22, strict=strict)
        with pytest.raises(NoAnswer, match="cannot be compared: only ssh-rsa keys are known"):
            known.check(blob(keys["new"]), time.time(), offered=("ssh-ed25519",))
        with pytest.raises(NoAnswer, match="has changed"):
            known.check(blob(keys["new"]), time.time(), offered=("rsa-sha2-512", "ssh-ed25519"))


def test_revoked_host_keys_of_the_configuration(tmp_path: Path, keys: dict[str, Path]) -> None:
    revoked = host_keys.revoked_keys(write(tmp_path, f"# lost\n{public(keys['old'])} old\n", "revoked"))
    found = host_keys.HostKeys([write(tmp_path, f"gpu001 {public(keys['old'])}\n", "known_hosts")])
    with pytest.raises(NoAnswer, match="is revoked"):
        host_keys.known(found, "gpu001", 22, revoked=revoked).check(blob(keys["old"]), time.time())
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(tmp_path / "krl"), f"{keys['old']}.pub"], check=True)
    for name, message in (("krl", "is a KRL; use --via auto or openssh"), ("absent", "cannot be read")):
        with pytest.raises(NoAnswer, match=message):
            host_keys.revoked_keys(tmp_path / name)


def test_revoked_keys(tmp_path: Path, keys: dict[str, Path]) -> None:
    lines = f"gpu001 {public(keys['old'])}\n@revoked * {public(keys['old'])}\n"
    assert "is revoked" in judge(tmp_path, lines, keys["old"])
    assert "is revoked" in judge(tmp_path, lines, keys["old"], strict=False)
    assert judge(tmp_path, f"gpu001 {public(keys['new'])}\n@revoked other {public(keys['new'])}\n", keys["new"]) == ""


# Host certificates


def certify(keys: dict[str, Path], folder: Path, *options: str, kind: str = "new", signer: str = "authority") -> Path:
    """Copy a host key and have it signed."""
    copy = folder / f"host_{kind}"
    for suffix in ("", ".pub"):
        Path(f"{copy}{suffix}").write_bytes(Path(f"{keys[kind]}{suffix}").read_bytes())
        Path(f"{copy}{suffix}").chmod(0o600)
    sign = ["ssh-keygen", "-q", "-s", str(keys[signer]), "-I", "host", *options, f"{copy}.pub"]
    subprocess.run(sign, check=True, capture_output=True)
    return copy


@pytest.mark.parametrize("kind", ["new", "rsa", "ecdsa"])
@pytest.mark.parametrize("signer", ["authority", "rsa", "ecdsa"])
def test_a_certificate_is_taken_apart(tmp_path: Path, keys: dict[str, Path], kind: str, signer: str) -> None:
    signed = certify(keys, tmp_path, "-h", "-n", "gpu001,gpu002", "-V", "-1h:+1h", kind=kind, signer=signer)
    raw = host_keys._parse(b"x " + Path(f"{signed}-cert.pub").read_bytes(), "").blob  # type: ignore[union-attr]
    parsed = certificate.parse(raw)
    assert parsed
    assert parsed.key == blob(keys[kind])
    assert parsed.signer == blob(keys[signer])
    assert parsed.host_refusal("gpu002", time.time()) == ""
    assert "not for gpu003" in parsed.host_refusal("gpu003", time.time())
    assert parsed.host_refusal("gpu001", time.time() - 7200) == "it is not valid yet; compare the clocks"
    assert parsed.host_refusal("gpu001", time.time() + 7200) == "it has expired"
    for position in range(0, len(raw), 3):
        damaged = certificate.parse(raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :])
        assert damaged is None or damaged.host_refusal("gpu001", time.time())
        assert certificate.parse(raw[:position]) is None


@needs_farm
@pytest.mark.parametrize("kind", ["new", "rsa", "ecdsa"])
def test_cert_authority(tmp_path: Path, keys: dict[str, Path], kind: str) -> None:
    with Farm(1) as farm:
        farm.use_host_key(farm.hosts[0], certify(keys, tmp_path, "-h", "-n", farm.hosts[0], kind=kind))
        farm.known_hosts.write_text(f"@cert-authority [127.77.*]:{farm.port} {public(keys['authority'])}\n")
        assert answered(collect(farm, farm.hosts)[farm.hosts[0]])


@needs_farm
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-h", "-n", "127.77.0.2"), "it is for 127.77.0.2, not for 127.77.0.1"),
        (("-h", "-V", "-2h:-1h"), "it has expired"),
        (("-n", "127.77.0.1"), "it is not a host certificate"),
        (None, "of an unknown authority"),
        ((), "is revoked"),
    ],
)
def test_certificates_that_do_not_hold(
    tmp_path: Path, keys: dict[str, Path], options: tuple[str, ...] | None, message: str
) -> None:
    with Farm(1) as farm:
        farm.use_host_key(farm.hosts[0], certify(keys, tmp_path, *(options or ("-h",))))
        authority = public(keys["old" if options is None else "authority"])
        lines = f"@cert-authority * {authority}\n" + (f"@revoked * {authority}\n" if options == () else "")
        farm.known_hosts.write_text(lines)
        assert message in reason(collect(farm, farm.hosts)[farm.hosts[0]], "host-key")


# Real hosts


@needs_farm
def test_the_known_key_is_requested_where_a_host_has_several(tmp_path: Path, keys: dict[str, Path]) -> None:
    with Farm(3) as farm:
        for host, kind in zip(farm.hosts, ("rsa", "ecdsa", "old"), strict=True):
            farm.use_host_key(host, keys[kind])
        farm.known_hosts.write_text(
            "".join(
                f"[{host}]:{farm.port} {public(keys[kind])}\n"
                for host, kind in zip(farm.hosts, ("rsa", "ecdsa", "rsa"), strict=True)
            )
        )
        found = collect(farm, farm.hosts)
        assert answered(found[farm.hosts[0]])
        assert answered(found[farm.hosts[1]])
        assert "the host key has changed" in reason(found[farm.hosts[2]], "host-key")


@needs_farm
@pytest.mark.parametrize("strict", ["yes", "accept-new"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_host_with_keys_of_several_types_is_known_by_any(
    tmp_path: Path, keys: dict[str, Path], kind: str, strict: str
) -> None:
    with Farm(1) as farm:
        host = farm.hosts[0]
        farm.use_host_key(host, keys["new"])
        farm.view(host, View(sshd=tuple(f"HostKey={keys[name]}" for name in ("rsa", "ecdsa"))))
        right = keys["new" if kind == "old" else kind]
        farm.known_hosts.write_text(f"[{host}]:{farm.port} {public(right)}\n")
        config = write(tmp_path, f"StrictHostKeyChecking {strict}\n" + farm.ssh_config.read_text())
        assert answered(collect(farm, [host], config)[host])
        other = keygen(tmp_path / "other", kind="rsa")
        farm.known_hosts.write_text(f"[{host}]:{farm.port} {public(other)}\n")
        assert "the host key has changed" in reason(collect(farm, [host], config)[host], "host-key")
        farm.use_host_key(host, keys["old"])
        farm.view(host, View())
        assert "the host key has changed" in reason(collect(farm, [host], config)[host], "host-key")


@needs_farm
def test_lengths_and_signatures_that_the_configuration_forbids(tmp_path: Path, keys: dict[str, Path]) -> None:
    with Farm(1) as farm:
        base, host = farm.ssh_config.read_text(), farm.hosts[0]
        short = keygen(tmp_path / "short", "-b", "2048", kind="rsa")
        farm.authorize(public(short))
        text = f"Host *\n IdentityFile {short}\n" + base.replace(f"IdentityFile {farm.key}", "")
        assert answered(collect(farm, [host], write(tmp_path, text))[host])
        for line, why in (
            ("RequiredRSASize 3072", "has 2048 bits, and RequiredRSASize of the SSH configuration is 3072"),
            ("PubkeyAcceptedAlgorithms ssh-ed25519", "is excluded by PubkeyAcceptedAlgorithms"),
        ):
            node = collect(farm, [host], write(tmp_path, f"{line}\n{text}"))[host]
            assert why in reason(node, "authenticate")
        farm.use_host_key(host, short)
        farm.known_hosts.write_text(f"[{host}]:{farm.port} {public(short)}\n")
        node = collect(farm, [host], write(tmp_path, f"RequiredRSASize 3072\n{base}"))[host]
        assert "the host's RSA key has 2048 bits" in reason(node, "host-key")
        farm.use_host_key(host, certify(keys, tmp_path, "-h", "-n", host, signer="authority"))
        farm.known_hosts.write_text(f"@cert-authority * {public(keys['authority'])}\n")
        assert answered(collect(farm, [host])[host])
        node = collect(farm, [host], write(tmp_path, f"CASignatureAlgorithms rsa-sha2-512\n{base}"))[host]
        assert "the host certificate is not valid" in reason(node, "host-key")


@needs_farm
def test_the_named_fixes_work(tmp_path: Path, keys: dict[str, Path]) -> None:
    with Farm(2) as farm:
        changed, unknown = farm.hosts
        farm.known_hosts.write_text(f"[{changed}]:{farm.port} {public(keys['old'])}\n")
        for _ in range(2):  # a changed key is removed first, and is then unknown
            for node in collect(farm, farm.hosts).values():
                if node.no_answer:
                    command = reason(node, "host-key").rpartition(": ")[2]
                    assert command.startswith(("ssh-keyscan ", "ssh-keygen "))
                    subprocess.run(command, shell=True, check=True, capture_output=True)
        assert all(answered(node) for node in collect(farm, farm.hosts).values())
        assert unknown in farm.hosts


@needs_farm
def test_include_match_and_a_key_for_each_host(tmp_path: Path, keys: dict[str, Path]) -> None:
    with Farm(3) as farm:
        mine = [keygen(tmp_path / f"id_{host}") for host in farm.hosts]
        for key in mine:
            farm.authorize(public(key))
        write(tmp_path, f"Match host 127.77.*\n Port {farm.port}\n User {farm.user}\n", "more")
        file = write(
            tmp_path,
            f"Include {{folder}}/more\nHost *\n IdentityFile {{folder}}/id_%h\n IdentitiesOnly yes\n"
            f" UserKnownHostsFile {farm.known_hosts}\n",
        )
        (tmp_path / f"id_{farm.hosts[2]}").unlink()
        found = collect(farm, farm.hosts, file)
        assert answered(found[farm.hosts[0]])
        assert answered(found[farm.hosts[1]])
        assert "there is no key to offer" in reason(found[farm.hosts[2]], "authenticate")


@needs_farm
def test_algorithms_that_the_configuration_allows(tmp_path: Path) -> None:
    with Farm(1) as farm:
        base = farm.ssh_config.read_text()
        kinds = "KexAlgorithms ecdh-sha2-nistp384\nCiphers aes256-ctr\nMACs hmac-sha2-512\n"
        assert answered(collect(farm, farm.hosts, write(tmp_path, kinds + base))[farm.hosts[0]])
        file = write(tmp_path, "HostKeyAlgorithms rsa-sha2-512\n" + base)
        assert "no acceptable host key" in reason(collect(farm, farm.hosts, file)[farm.hosts[0]], "banner")
        file = write(tmp_path, f"RevokedHostKeys {farm.host_key}.pub\n" + base)
        assert "is revoked" in reason(collect(farm, farm.hosts, file)[farm.hosts[0]], "host-key")
        file = write(tmp_path, "Ciphers chacha20-poly1305@openssh.com\n" + base)
        refused = reason(collect(farm, farm.hosts, file)[farm.hosts[0]], "connect")
        assert refused.startswith("paramiko supports none of the Ciphers of the SSH configuration; use --via auto")


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
