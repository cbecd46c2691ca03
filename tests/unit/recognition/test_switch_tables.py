"""Single answers of switches: each fault beside a healthy answer of the same form."""

from __future__ import annotations

import pytest

from preflight.recognition import read_text
from preflight.recognition.detector import TextPart

EOS_STATUS = """\
arl2#sh int status
Port       Name              Status       Vlan     Duplex Speed  Type            Flags Encapsulation
Et1/1      gx-07 mlx5_0      connected    routed   full   400G   400GBASE-DR4
Et2/1      gx-08 mlx5_0      {state:12} routed   full   400G   400GBASE-DR4
Et3/1      {name:17} {other:12} routed   full   400G   {module}
Et4/1      gx-09 mlx5_0      connected    routed   full   {speed}   400GBASE-DR4
Ma1                          connected    routed   a-full a-1G   10/100/1000
"""
EOS_ERRORS = """\
Port              FCS    Align   Symbol       Rx    Runts   Giants       Tx
Et1/1               0        0        0        0        0        0        0
Et2/1           {fcs:5}        0        0        0        0        0        0
"""
EOS_LIGHT = """\
                                Bias      Optical   Optical
           Temp       Voltage   Current   Tx Power  Rx Power
Port       (Celsius)  (Volts)   (mA)      (dBm)     (dBm)     Last Update
-----      ---------  --------  --------  --------  --------  -------------------
Et1/1       41.20      3.27      61.10     1.12      0.41     0:00:04 ago
Et2/1       44.90      3.27      60.80     1.04     {light}    0:00:04 ago
"""
EOS_TEXT = """\
Ethernet7/1 is {state}, line protocol is {state} ({why})
  Hardware is Ethernet, address is 02aa.bb01.0007 (bia 02aa.bb01.0007)
  Ethernet MTU 9214 bytes, BW 400000000 kbit
  Full-duplex, 400Gb/s, auto negotiation: off, uni-link: n/a
     0 runts, 0 giants
     {crc} input errors, {crc} CRC, 0 alignment, 0 symbol, 0 input discards
     0 output errors, 0 collisions
     0 late collision, 0 deferred, {drops} output discards
"""
NXOS_ERRORS = """\
--------------------------------------------------------------------------------
Port          Align-Err    FCS-Err   Xmit-Err    Rcv-Err  UnderSize OutDiscards
--------------------------------------------------------------------------------
Eth1/7                0          0          0          0          0    {drops:8}
--------------------------------------------------------------------------------
Port          Giants SQETest-Err Deferred-Tx IntMacTx-Er IntMacRx-Er Symbol-Err
--------------------------------------------------------------------------------
Eth1/7      {giants:6}          --           0           0           0          0
"""
NXOS_BRIEF = """\
Ethernet        VLAN    Type Mode   Status  Reason                 Speed     Port
Interface                                                                    Ch #
--------------------------------------------------------------------------------
Eth1/1          --      eth  routed up      none                    400G(D) --
Eth1/2          --      eth  routed down    {reason:23} auto(D) --
"""
NXOS_PFC = """\
============================================================
Port               Mode Oper(VL bmap)  RxPPP      TxPPP
============================================================

Ethernet1/1        On   On  (8)        1203       88
Ethernet1/2        On   On  (8)        {pauses:10} 91
Ethernet1/3        {mode}        0          0
"""
SONIC_STATUS = """\
  Interface                    Lanes    Speed    MTU    FEC    Alias    Vlan    Oper    Admin    Type    Asym PFC
-----------  -----------------------  -------  -----  -----  -------  ------  ------  -------  ------  ----------
  Ethernet0          0,1,2,3,4,5,6,7     400G   9100     rs     etp1  routed      up       up  QSFP28         N/A
  Ethernet8    8,9,10,11,12,13,14,15     400G   {mtu}  {fec:>5}     etp2  routed      up       up  QSFP28         N/A
 Ethernet16  16,17,18,19,20,21,22,23     400G   9100     rs     etp3  routed    {oper:>4}       up  QSFP28         N/A
"""
SONIC_COUNTERS = """\
      IFACE    STATE        RX_OK        RX_BPS    RX_UTIL    RX_ERR    RX_DRP    RX_OVR        TX_OK    TX_ERR
-----------  -------  -----------  ------------  ---------  --------  --------  --------  -----------  --------
  Ethernet0        U  918,312,331  1120.12 MB/s      2.24%         0         0         0  918,312,000         0
  Ethernet8        {state}  118,312,331    20.12 MB/s      0.04%    {errors:>6}         0         0  118,312         0
"""
SONIC_PAUSES = """\
     Port Rx    PFC0    PFC1    PFC2       PFC3    PFC4    PFC5    PFC6    PFC7
------------  ------  ------  ------  ---------  ------  ------  ------  ------
   Ethernet8       0       0       0  {pauses:>9}       0       0       0       0

     Port Tx    PFC0    PFC1    PFC2       PFC3    PFC4    PFC5    PFC6    PFC7
------------  ------  ------  ------  ---------  ------  ------  ------  ------
   Ethernet8       0       0       0         11       0       0       0       0
"""
SONIC_PRIORITIES = """\
Interface    Lossless priorities
-----------  ---------------------
Ethernet0    3,4
Ethernet8    3,4
Ethernet16   {priorities}
"""
SONIC_QUEUES = """\
     Port    TxQ    Counter/pkts    Counter/bytes    Drop/pkts    Drop/bytes
---------  -----  --------------  ---------------  -----------  ------------
Ethernet0    UC3      12,331,002   51,002,331,221       {drops:>6}   165,911,000
Ethernet0    MC8             N/A              N/A          N/A           N/A
"""
SONIC_GROUPS = """\
Ingress PG dropped packets:
     Port    PG0    PG1    PG2    PG3    PG4    PG5    PG6    PG7
---------  -----  -----  -----  -----  -----  -----  -----  -----
Ethernet8      0      0      0   {drops:>4}      0      0      0      0
"""
SONIC_WATCHDOG = """\
       QUEUE       STATUS    STORM DETECTED/RESTORED    TX OK/DROP    RX OK/DROP
------------  -----------  -------------------------  ------------  ------------
 Ethernet0:3  {status:>11}                        {storms}       100/300       100/300
"""
NVUE = """\
cumulus@leaf5:mgmt:~$ nv show interface
Interface  Admin Status  Oper Status  Speed  MTU    Type      Remote Host  Remote Port  Summary
---------  ------------  -----------  -----  -----  --------  -----------  -----------  -------
eth0       up            up           1G     1500   eth       oob-1        swp7         IP Address: 10.1.1.5/24
lo         up            unknown             65536  loopback                            IP Address: 127.0.0.1/8
swp1       up            up           400G   9216   swp       gx-01        ens1f0np0
swp2       {admin:12}  {oper:11}         9216   swp
swp3       up            up           {speed}   9216   swp       gx-03        ens1f0np0
swp4       up            up           400G   9216   swp       gx-04        ens1f0np0
"""
NVUE_PORT = """\
                          operational        applied
------------------------  -----------------  -------
type                      swp                swp
link
  mtu                     9216               9216
  state                   up                 up
  stats
    carrier-transitions   1
    in-errors             {errors}
    out-drops             0
"""
NVUE_ROCE = """\
                    operational  applied  description
------------------  -----------  -------  ---------------------------
enable                           on       Turn the feature on or off.
mode                {mode:11}  {mode:8} Roce Mode
congestion-control
  congestion-mode   ECN
  enabled-tc        0,3
pfc
  pfc-priority      {priority}
  rx-enabled        {rx}
  tx-enabled        yes
trust
  trust-mode        {trust}
"""
ONYX = """\
IB1/9 state:
  Logical port state          : Active
  Physical port state         : LinkUp
  Current line rate           : 212.5 Gbps
  Supported widths            : 1X, 4X
  Width                       : {width}
"""


def single(text: str) -> TextPart:
    (only,) = read_text(text, "pasted")
    assert only.kind == "switch show"
    return only


def remarks(text: str) -> set[tuple[str, str]]:
    """Return the status and check of all findings but passes."""
    return {(item["status"], item["check"]) for item in single(text).findings if item["status"] != "pass"}


HEALTHY: dict[str, tuple[str, dict[str, object]]] = {
    "eos status": (EOS_STATUS, {"state": "connected", "other": "disabled", "name": "", "module": "-", "speed": "400G"}),
    "eos errors": (EOS_ERRORS, {"fcs": 0}),
    "eos light": (EOS_LIGHT, {"light": "-2.10"}),
    "eos text": (EOS_TEXT, {"state": "up", "why": "connected", "crc": 0, "drops": 0}),
    "nxos errors": (NXOS_ERRORS, {"drops": 0, "giants": 0}),
    "nxos brief": (NXOS_BRIEF, {"reason": "Administratively down"}),
    "nxos pfc": (NXOS_PFC, {"pauses": 12, "mode": "On   On  (8)"}),
    "sonic status": (SONIC_STATUS, {"mtu": 9100, "fec": "rs", "oper": "up"}),
    "sonic counters": (SONIC_COUNTERS, {"state": "U", "errors": "0"}),
    "sonic pauses": (SONIC_PAUSES, {"pauses": "120"}),
    "sonic priorities": (SONIC_PRIORITIES, {"priorities": "3,4"}),
    "sonic queues": (SONIC_QUEUES, {"drops": "0"}),
    "sonic groups": (SONIC_GROUPS, {"drops": "0"}),
    "sonic watchdog": (SONIC_WATCHDOG, {"status": "operational", "storms": "0/0"}),
    "nvue": (NVUE, {"admin": "down", "oper": "down", "speed": "400G"}),
    "nvue port": (NVUE_PORT, {"errors": 0}),
    "nvue roce": (NVUE_ROCE, {"mode": "lossless", "priority": 3, "rx": "yes", "trust": "pcp,dscp"}),
    "onyx": (ONYX, {"width": "4X"}),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_answer_is_judged_and_passes(name: str) -> None:
    text, values = HEALTHY[name]
    answer = single(text.format(**values))
    assert answer.read_in_full
    assert {item["status"] for item in answer.findings} == {"pass"}


@pytest.mark.parametrize(("name", "values", "expected"), [
    ("eos status", {"state": "notconnect"}, {("warn", "rdma.port-state")}),
    ("eos status", {"state": "errdisabled"}, {("fail", "rdma.port-state")}),
    ("eos status", {"other": "notconnect", "module": "Not Present"}, {("unknown", "rdma.port-state")}),
    ("eos status", {"speed": "100G"}, {("unknown", "fabric.link-speed")}),
    ("eos errors", {"fcs": 8811}, {("unknown", "counters.link-quality")}),
    ("eos light", {"light": "-30.00"}, {("unknown", "optics.switch-end")}),
    ("eos light", {"light": "-12.00"}, {("unknown", "optics.switch-end")}),
    ("eos text", {"crc": 991}, {("unknown", "counters.link-quality")}),
    ("eos text", {"drops": 991}, {("unknown", "counters.loss")}),
    ("eos text", {"state": "down", "why": "notconnect"}, {("unknown", "rdma.port-state")}),
    ("nxos errors", {"drops": 4711}, {("unknown", "counters.loss")}),
    ("nxos errors", {"giants": 4711}, {("unknown", "counters.link-quality")}),
    ("nxos brief", {"reason": "Link not connected"}, {("unknown", "rdma.port-state")}),
    ("nxos pfc", {"pauses": 4711000}, {("unknown", "fabric.pause-root")}),
    ("nxos pfc", {"mode": "Auto Off    "}, {("warn", "link.pfc")}),
    ("sonic status", {"mtu": 1500}, {("warn", "switch.mtu")}),
    ("sonic status", {"fec": "none"}, {("warn", "optics.fec")}),
    ("sonic status", {"oper": "down"}, {("unknown", "rdma.port-state")}),
    ("sonic counters", {"errors": "71,203"}, {("unknown", "counters.link-quality")}),
    ("sonic counters", {"state": "D"}, {("unknown", "rdma.port-state")}),
    ("sonic pauses", {"pauses": "9,120,331"}, {("unknown", "fabric.pause-root")}),
    ("sonic priorities", {"priorities": ""}, {("warn", "link.pfc")}),
    ("sonic queues", {"drops": "40,221"}, {("unknown", "counters.loss")}),
    ("sonic groups", {"drops": "4410"}, {("unknown", "switch.lossless-drops")}),
    ("sonic watchdog", {"storms": "2/2"}, {("warn", "switch.watchdog-fired")}),
    ("sonic watchdog", {"storms": "2/1", "status": "stormed"}, {("fail", "switch.watchdog-fired")}),
    ("nvue", {"admin": "up"}, {("unknown", "rdma.port-state")}),
    ("nvue", {"speed": "200G"}, {("unknown", "fabric.link-speed")}),
    ("nvue port", {"errors": 90112}, {("unknown", "counters.link-quality")}),
    ("nvue roce", {"rx": "no"}, {("warn", "switch.pfc")}),
    ("nvue roce", {"mode": "lossy"}, {("unknown", "switch.pfc")}),
    ("nvue roce", {"trust": "pcp"}, {("warn", "switch.dscp")}),
    ("onyx", {"width": "1X"}, {("warn", "fabric.link-speed")}),
])  # fmt: skip
def test_a_fault_is_named(name: str, values: dict[str, object], expected: set[tuple[str, str]]) -> None:
    text, healthy = HEALTHY[name]
    assert remarks(text.format(**{**healthy, **values})) == expected


def test_the_switch_of_the_prompt_is_named() -> None:
    text, healthy = HEALTHY["eos status"]
    answer = single(text.format(**{**healthy, "state": "notconnect"}))
    assert answer.taken.facts["switch"] == "arl2"
    assert any(item["subject"] == "arl2 Et2/1" for item in answer.findings)


@pytest.mark.parametrize("text", [
    "NAME        READY   STATUS    RESTARTS   AGE\ntrainer-0   1/1     Running   0          3d\n",
    "Port   Name\nhttp   web\n", "Interface is up\n  1 CRC\n",
    "PORT      STATE  SERVICE\n22/tcp    open   ssh\n",
])  # fmt: skip
def test_tables_of_other_tools_are_none_of_a_switch(text: str) -> None:
    assert all(part.kind != "switch show" for part in read_text(text, "pasted"))
