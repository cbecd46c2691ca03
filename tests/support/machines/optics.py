"""Modules and cables: ``ethtool -m`` (CMIS), ``ethtool --show-fec``, ``mlxlink -m -c``.

The formats follow ethtool's cmis.c and module-common.c, and the mlxlink pages of NVIDIA's MFT documentation.
"""

from __future__ import annotations

from tests.support.machines.hcas import verbs
from tests.support.machines.machine import Machine, Nic
from tests.support.machines.records import Records, ran

_NOT_SUPPORTED = "netlink error: Operation not supported\n"
_FLAGS = ("Module temperature", "Module voltage")
_LANE_FLAGS = ("Laser bias current", "Laser tx power", "Laser rx power")


def render(machine: Machine) -> Records:
    records: Records = {}
    for _, nic in verbs(machine):
        if nic.efa:
            continue
        name = nic.netdev(machine.roce)
        virtual = nic.lanes == 0 or not nic.qos.shown
        plugged = nic.physical != "Disabled"
        if nic.here:
            module = ran("", 1, _NOT_SUPPORTED)
            if nic.ethernet(machine.roce) and not virtual:
                module = ran(_module(nic)) if plugged else ran("", 1, "netlink error: Invalid argument\n")
            records[f"cmd:ethtool -m {name}"] = module
            fec = ran(f"FEC parameters for {name}:\nSupported/Configured FEC encodings: Auto\n"
                      f"Active FEC encoding: {nic.fec}\n")  # fmt: skip
            physical = nic.ethernet(machine.roce) and not virtual
            records[f"cmd:ethtool --show-fec {name}"] = fec if physical else ran("", 1, _NOT_SUPPORTED)
        if not virtual:
            records[f"cmd:mlxlink -d {nic.device} -m -c"] = ran(_mlxlink(machine, nic, plugged))
    return records


def _line(name: str, value: object) -> str:
    return f"\t{name:<41} : {value}\n"


def _module(nic: Nic) -> str:
    celsius = f"{nic.module_c:.2f} degrees C / {nic.module_c * 1.8 + 32:.2f} degrees F"
    text = "".join((
        _line("Identifier", "0x19 (OSFP 8X Pluggable Transceiver)"), _line("Power class", "8"),
        _line("Max power", "17.00W"), _line("Vendor name", "NVIDIA"), _line("Vendor OUI", "48:b0:2d"),
        _line("Vendor PN", "MMA4Z00-NS400"), _line("Vendor rev", "A3"),
        _line("Vendor SN", f"MT2301FT{nic.domain:02X}{nic.bus:02X}{nic.function}"),
        _line("Module State", "0x03 (ModuleReady)"), _line("LowPwrAllowRequestHW", "Off"),
        _line("Module temperature", celsius), _line("Module voltage", "3.2800 V"),
    ))  # fmt: skip
    for lane in range(1, 5):
        light = nic.rx_mw if lane == 1 else 0.9
        text += _line(f"Laser tx bias current (Channel {lane})", "8.000 mA")
        text += _line(f"Transmit avg optical power (Channel {lane})", "1.2023 mW / 0.80 dBm")
        text += _line(f"Rcvr signal avg optical power (Channel {lane})", f"{light:.4f} mW / -0.46 dBm")
    for name in _FLAGS:
        text += "".join(_flag(nic, f"{name} {level}") for level in _LEVELS)
    for name in _LANE_FLAGS:
        text += "".join(_flag(nic, f"{name} {level} (Chan {lane})") for level in _LEVELS for lane in range(1, 5))
    limits = {"Module temperature": ("degrees C", 80, 0, 70, 10), "Laser rx power": ("mW", 3.5, 0.05, 2.5, 0.1)}
    for name, (unit, *values) in limits.items():
        text += "".join(_line(f"{name} {level} threshold", f"{value:.2f} {unit}")
                        for level, value in zip(_LEVELS, values, strict=True))  # fmt: skip
    return text


_LEVELS = ("high alarm", "low alarm", "high warning", "low warning")


def _flag(nic: Nic, name: str) -> str:
    return _line(name, "On" if name in nic.module_flags else "Off")


def _mlxlink(machine: Machine, nic: Nic, plugged: bool) -> str:
    roce, up = nic.ethernet(machine.roce), nic.state == "ACTIVE"
    gigabits = int(float(nic.rate.split()[0]))

    def rows(title: str, *values: tuple[str, object]) -> str:
        return f"\n{title}\n{'-' * len(title)}\n" + "".join(f"{name:<34} : {value}\n" for name, value in values)

    nought = "15E-255"
    ratio = f"{nic.raw_ber:.0E}".replace("E-0", "E-") if up else nought
    return (
        rows("Operational Info", ("State", "Active" if up else "Disable"),
             ("Physical state", ("ETH_AN_FSM_ENABLE" if roce else "LinkUp") if up else "Disabled"),
             ("Speed", f"{gigabits}G" if roce else "IB-NDR"), ("Width", "4x"),
             ("FEC", "Standard_RS-FEC - (544,514)" if up else "N/A"), ("Loopback Mode", "No Loopback"),
             ("Auto Negotiation", "ON"))
        + rows("Troubleshooting Info", ("Status Opcode", 0), ("Group Opcode", "N/A"),
               ("Recommendation", "No issue was observed"))
        + rows("Module Info", ("Identifier", "OSFP" if plugged else "N/A"),
               ("Cable Type", "Optical Module (separated)" if plugged else "Unplugged"), ("Vendor Name", "NVIDIA"),
               ("Temperature [C]", f"{nic.module_c:.0f} [-10..80]" if plugged else "N/A"),
               ("Voltage [mV]", "3280 [3135..3465]"))
        + rows("Physical Counters and BER Info", ("Time Since Last Clear [Min]", "7016.7"), ("Symbol Errors", 0),
               ("Effective Physical Errors", 0), ("Effective Physical BER", nought),
               ("Raw Physical BER", ratio),
               ("Symbol BER", f"{nic.symbol_ber:.0E}" if nic.symbol_ber else nought),
               ("Link Down Counter", 3), ("Link Error Recovery Counter", 0))
    )  # fmt: skip
