"""Calls of psutil; they run only in the library's child process."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    Answer = Callable[[Dict[str, Any]], None]


def virtual_memory(psutil: "Any", answer: "Answer") -> None:
    """Answer with the host's memory in bytes."""
    answer({"status": "ok", "value": dict(psutil.virtual_memory()._asdict())})


def net_if_addrs(psutil: "Any", answer: "Answer") -> None:
    """Answer with the addresses of each network interface."""
    import socket

    words = {socket.AF_INET: "inet", socket.AF_INET6: "inet6", psutil.AF_LINK: "link"}
    value = {}
    for interface, addresses in psutil.net_if_addrs().items():
        value[interface] = [
            {
                "family": words.get(found.family, str(int(found.family))),
                "address": found.address,
                "netmask": found.netmask,
            }
            for found in addresses
        ]
    answer({"status": "ok", "value": value})


#: Calls allowed in a plan.
CALLS = {"virtual_memory": virtual_memory, "net_if_addrs": net_if_addrs}
