"""Settings of an SSH configuration that paramiko does not support.

Every keyword of ``ssh -G`` is examined. A keyword that is neither supported here nor irrelevant to a command without a
terminal requires OpenSSH, including keywords of later releases.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Keywords that ``ssh_config`` reads and the transport follows.
FOLLOWED = frozenset((
    "host", "match", "hostname", "port", "user", "identityfile", "certificatefile", "identitiesonly",
    "identityagent", "proxyjump", "proxycommand", "userknownhostsfile", "globalknownhostsfile",
    "revokedhostkeys", "hostkeyalias", "stricthostkeychecking", "addressfamily", "bindaddress",
    "hostkeyalgorithms", "kexalgorithms", "ciphers", "macs", "pubkeyacceptedalgorithms", "casignaturealgorithms",
    "pubkeyacceptedkeytypes", "requiredrsasize", "rsaminsize",
))  # fmt: skip

#: Keywords that do not affect a command without a terminal, or that ``openssh`` disables.
HARMLESS = frozenset((
    "addkeystoagent", "batchmode", "canonicaldomains", "canonicalizefallbacklocal", "canonicalizehostname",
    "canonicalizemaxdots", "canonicalizepermittedcnames", "challengeresponseauthentication", "channeltimeout",
    "checkhostip", "clearallforwardings", "compression", "compressionlevel", "connectionattempts", "connecttimeout",
    "controlmaster", "controlpath", "controlpersist", "dynamicforward", "enableescapecommandline", "enablesshkeysign",
    "escapechar", "exitonforwardfailure", "fingerprinthash", "forkafterauthentication", "forwardagent", "forwardx11",
    "forwardx11timeout", "forwardx11trusted", "gatewayports", "gssapiclientidentity", "gssapidelegatecredentials",
    "gssapikexalgorithms", "gssapirenewalforcesrekey", "gssapiserveridentity", "gssapitrustdns", "hashknownhosts",
    "hostbasedacceptedalgorithms", "hostbasedkeytypes", "ignoreunknown", "include", "ipqos",
    "kbdinteractiveauthentication", "kbdinteractivedevices", "localcommand", "localforward", "loglevel", "logverbose",
    "nohostauthenticationforlocalhost", "numberofpasswordprompts", "obscurekeystroketiming", "passwordauthentication",
    "permitlocalcommand", "permitremoteopen", "protocol", "rekeylimit", "remotecommand",
    "remoteforward", "requesttty", "securitykeyprovider", "sendenv", "serveralivecountmax", "serveraliveinterval",
    "sessiontype", "stdinnull", "streamlocalbindmask", "streamlocalbindunlink", "syslogfacility", "tag",
    "tcpkeepalive", "tunnel", "tunneldevice", "updatehostkeys", "usekeychain", "useprivilegedport", "visualhostkey",
    "warnweakcrypto", "xauthlocation",
))  # fmt: skip

#: Values without a requirement, for any keyword.
_OFF = ("no", "none", "false", "")

#: Further values without a requirement, by keyword.
_ALSO_OFF = {"verifyhostkeydns": ("ask",)}

#: Keywords that are a requirement if off.
_ON = {"pubkeyauthentication": ("no", "false")}

#: Keywords as ssh_config(5) writes them, for messages.
_NAMES = {
    name.lower(): name
    for name in (
        "BindInterface", "GSSAPIAuthentication", "GSSAPIKeyExchange", "HostbasedAuthentication", "KnownHostsCommand",
        "PKCS11Provider", "PreferredAuthentications", "ProxyUseFdpass", "PubkeyAuthentication", "SetEnv",
        "VerifyHostKeyDNS",
    )
}  # fmt: skip

_KLIST_LIMIT_S = 5.0


class Demands:
    """The settings of a run's hosts for which paramiko is not sufficient."""

    def of(self, values: Mapping[str, Sequence[str]], defaults: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        """Return each setting of a host that paramiko cannot follow, as ``Keyword value``."""
        return tuple(
            f"{_NAMES.get(keyword, keyword)} {value}"
            for keyword, found in values.items()
            if keyword not in FOLLOWED and keyword not in HARMLESS and found != defaults.get(keyword)
            for value in found
            if self._is_demand(keyword, value)
        )

    def _is_demand(self, keyword: str, value: str) -> bool:
        word = value.lower()
        if keyword == "preferredauthentications":
            return "publickey" not in word.split(",")
        if keyword.startswith("gssapi"):  # Debian and Red Hat enable it by default
            return word not in _OFF and self._has_ticket
        if keyword in _ON:
            return word in _ON[keyword]
        return word not in _OFF and word not in _ALSO_OFF.get(keyword, ())

    @functools.cached_property
    def _has_ticket(self) -> bool:
        """Whether there may be a Kerberos ticket.

        Without one, ssh has no advantage over paramiko.
        """
        klist = shutil.which("klist")
        if klist is None:
            return bool(os.environ.get("KRB5CCNAME")) or Path(f"/tmp/krb5cc_{os.getuid()}").exists()
        try:
            command = [klist, "-s"]  # silent: exit status 0 if there is a valid ticket
            looked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_KLIST_LIMIT_S)
            return looked.returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False
