"""Detection of a network switch by its answer to the collector's command."""

from __future__ import annotations

import re

#: Characters of an answer that are searched, at its end.
_TAIL = 4000

#: Prompts and messages of one system's command line, the most specific first. Sources: the vendors' command references;
#: not recorded from devices.
_CLIS = (
    ("NVIDIA Onyx or MLNX-OS", r"UNIX shell commands cannot be executed using this account"),
    ("NVIDIA Onyx or MLNX-OS", r"\bNVIDIA Onyx\b|\bMLNX-OS\b"),
    ("Cisco NX-OS", r"Cisco Nexus Operating System|Syntax error while parsing '|Cmd exec error"),
    ("Cisco NX-OS", r"^\s*% ?Invalid command at '\^' marker"),
    ("Arista EOS", r"^\s*(?:> ?)?% ?Invalid input (?:\(at token \d{1,4}|at line \d|\(privileged mode required\))"),
    ("Arista EOS", r"\bArista Networks EOS\b"),
    ("Juniper Junos", r"^-+ JUNOS \d|^error: (?:unknown command: |syntax error, expecting <)"),
    ("Juniper Junos", r"^\s*\^\s*\n\s*unknown command\.?$"),
    ("Huawei VRP or H3C Comware", r"^\s*(?:% ?|Error: ?)Unrecognized command found at '\^' position"),
    ("HPE or Aruba", r"^\s*Invalid input: \S"),
    ("MikroTik RouterOS", r"^\s*bad command name \S{1,64} \(line \d"),
    ("Nokia SR Linux", r"^\s*(?:Error: )?Parsing error: Unknown token '"),
    (
        "of an unknown vendor",
        r"^\s*%{1,2} ?(?:Error: ?)?(?:Invalid|Unrecognized|Unknown|Ambiguous|Incomplete|Bad) (?:input|command)\b",
    ),
)
_PATTERNS = tuple((name, re.compile(words, re.MULTILINE)) for name, words in _CLIS)


def network_switch(output: bytes) -> str:
    """Return the system of the switch that printed this; empty if unknown."""
    text = output[-_TAIL:].decode("utf-8", "replace").replace("\r", "\n")
    return next((name for name, pattern in _PATTERNS if pattern.search(text)), "")
