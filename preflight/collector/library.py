"""Asks pynvml or psutil; runs as a child of its own, because a library call cannot be killed.

The collector hands this file's source to an interpreter that sees the node's packages. A request
comes as JSON on standard input; every line of the answer is JSON, the last one of a call counts,
so what was learnt before a call hung is kept.
"""

import functools
import json
import socket
import sys
import types
from typing import Any, Callable, Dict

Answer = Callable[[Dict[str, Any]], None]


def virtual_memory(psutil: Any, answer: Answer) -> None:
    """Answer with the host's memory, bytes."""
    answer({"status": "ok", "value": dict(psutil.virtual_memory()._asdict())})


def net_if_addrs(psutil: Any, answer: Answer) -> None:
    """Answer with the addresses of each network interface."""
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


def gpus(pynvml: Any, answer: Answer) -> None:
    """Answer with every GPU that the driver counts, each call on its own, after each GPU once more."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        absent = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        denied = pynvml.NVML_ERROR_NO_PERMISSION
        status = {absent: "missing", denied: "denied"}.get(error.value, "error")
        return answer({"status": status, "why": "NVML: {}".format(error)})
    value: Dict[str, Any] = {"errors": {}, "gpus": []}

    def ask(into: Dict[str, Any], key: str, call: Callable[[], Any]) -> Any:
        try:
            found = call()
            into[key] = found.decode("utf-8", "replace") if isinstance(found, bytes) else found
            return found
        except pynvml.NVMLError as error:
            into["errors"][key] = str(error)
            return None

    ask(value, "driver", pynvml.nvmlSystemGetDriverVersion)
    ask(value, "cuda", lambda: "{}.{}".format(*divmod(pynvml.nvmlSystemGetCudaDriverVersion() // 10, 100)))
    ask(value, "count", pynvml.nvmlDeviceGetCount)
    for index in range(value.get("count", 0)):
        gpu: Dict[str, Any] = {"index": index, "errors": {}}
        value["gpus"].append(gpu)
        answer({"status": "cut", "value": value, "why": "no answer for GPU {}".format(index)})
        handle = ask(gpu, "handle", functools.partial(pynvml.nvmlDeviceGetHandleByIndex, index))
        gpu.pop("handle", None)
        if handle is not None:
            _describe(pynvml, handle, gpu, ask)
    answer({"status": "ok", "value": value})
    pynvml.nvmlShutdown()


def _describe(pynvml: Any, handle: Any, gpu: Dict[str, Any], ask: Callable[..., Any]) -> None:
    pci = ask(gpu, "bus_id", lambda: pynvml.nvmlDeviceGetPciInfo(handle).busId)
    if pci is not None:
        number = pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId
        gpu["pci_device_id"] = "0x{:08X}".format(number)
    ask(gpu, "name", lambda: pynvml.nvmlDeviceGetName(handle))
    ask(gpu, "uuid", lambda: pynvml.nvmlDeviceGetUUID(handle))
    ask(gpu, "memory_total_bytes", lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total))


def load(name: str, source: str) -> Any:
    """Import the node's own library, else the one that travelled along; raise ImportError."""
    try:
        return __import__(name)
    except ImportError:
        if not source:
            raise
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, name + ".py", "exec"), module.__dict__)
    return module


CALLS = {"virtual_memory": virtual_memory, "net_if_addrs": net_if_addrs, "gpus": gpus}


def main() -> None:
    """Answer the request on standard input."""
    request = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    for call in request["calls"]:

        def answer(record: Dict[str, Any], call: str = call) -> None:
            sys.stdout.write(json.dumps({"call": call, "record": record}) + "\n")
            sys.stdout.flush()

        try:
            CALLS[call](load(request["library"], request.get("source", "")), answer)
        except ImportError:
            why = "{} is not installed on this node".format(request["library"])
            answer({"status": "missing", "why": why})
        except Exception as error:
            answer({"status": "error", "why": "{}: {}".format(type(error).__name__, error)})


if __name__ == "__main__":
    main()
