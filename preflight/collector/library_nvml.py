"""Calls of pynvml; they run only in the library's child process."""

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

    Answer = Callable[[Dict[str, Any]], None]


def gpus(pynvml: "Any", answer: "Answer") -> None:
    """Record every GPU that the driver counts, and the error of each failed call.

    The record so far is sent before each GPU, so that a GPU that hangs does not lose earlier ones.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        absent = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        denied = pynvml.NVML_ERROR_NO_PERMISSION
        status = {absent: "missing", denied: "denied"}.get(error.value, "error")
        return answer({"status": status, "why": "NVML: {}".format(error)})
    value: Dict[str, Any] = {"errors": {}, "gpus": []}

    def query(into: "Dict[str, Any]", key: str, call: "Callable[[], Any]") -> "Any":
        try:
            found = call()
            into[key] = found.decode("utf-8", "replace") if isinstance(found, bytes) else found
            return found
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                into.setdefault("not_supported", []).append(key)
            else:
                into["errors"][key] = str(error)
        except Exception as error:  # pynvml or the driver is older than the call
            into["errors"][key] = "{}: {}".format(type(error).__name__, error)
        return None

    query(value, "driver", pynvml.nvmlSystemGetDriverVersion)
    query(value, "cuda", lambda: "{}.{}".format(*divmod(pynvml.nvmlSystemGetCudaDriverVersion() // 10, 100)))
    query(value, "count", pynvml.nvmlDeviceGetCount)
    for index in range(value.get("count", 0)):
        gpu: Dict[str, Any] = {"index": index, "errors": {}}
        value["gpus"].append(gpu)
        answer({"status": "cut", "value": value, "why": "no answer for GPU {}".format(index)})
        handle = query(gpu, "handle", functools.partial(pynvml.nvmlDeviceGetHandleByIndex, index))
        gpu.pop("handle", None)
        if handle is not None:
            _describe(pynvml, handle, gpu, query)
    answer({"status": "ok", "value": value})
    pynvml.nvmlShutdown()


def _describe(pynvml: "Any", handle: "Any", gpu: "Dict[str, Any]", query: "Callable[..., Any]") -> None:
    pci = query(gpu, "bus_id", lambda: pynvml.nvmlDeviceGetPciInfo(handle).busId)
    if pci is not None:
        number = pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId
        gpu["pci_device_id"] = "0x{:08X}".format(number)
    for key, call in _CALLS.items():
        query(gpu, key, functools.partial(call, pynvml, handle))
    for key, function in _PLAIN.items():
        query(gpu, key, lambda name=function: getattr(pynvml, name)(handle))
    for counter, span in enumerate(("volatile", "aggregate")):
        for kind, severity in enumerate(("corrected", "uncorrected")):
            for location, memory in ((2, "dram"), (7, "sram")):
                arguments = (handle, kind, counter, location)
                key = "ecc_{}_{}_{}".format(span, memory, severity)
                query(gpu, key, lambda a=arguments: pynvml.nvmlDeviceGetMemoryErrorCounter(*a))


#: Key in the answer -> the NVML function that returns its value, in NVML's units.
_PLAIN = {
    "name": "nvmlDeviceGetName",
    "uuid": "nvmlDeviceGetUUID",
    "serial": "nvmlDeviceGetSerial",
    "persistence": "nvmlDeviceGetPersistenceMode",
    "mig": "nvmlDeviceGetMigMode",
    "ecc": "nvmlDeviceGetEccMode",
    "remapped_rows": "nvmlDeviceGetRemappedRows",
    "retired_pending": "nvmlDeviceGetRetiredPagesPendingStatus",
    "event_reasons": "nvmlDeviceGetCurrentClocksThrottleReasons",
    "power_limit_mw": "nvmlDeviceGetPowerManagementLimit",
    "power_enforced_mw": "nvmlDeviceGetEnforcedPowerLimit",
    "power_default_mw": "nvmlDeviceGetPowerManagementDefaultLimit",
    "temperature_margin_c": "nvmlDeviceGetMarginTemperature",
    "pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration",
    "pcie_generation_max": "nvmlDeviceGetMaxPcieLinkGeneration",
    "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth",
    "pcie_width_max": "nvmlDeviceGetMaxPcieLinkWidth",
    "pcie_replays": "nvmlDeviceGetPcieReplayCounter",
    "performance_state": "nvmlDeviceGetPerformanceState",
    "compute_mode": "nvmlDeviceGetComputeMode",
    "vbios": "nvmlDeviceGetVbiosVersion",
    "inforom": "nvmlDeviceGetInforomImageVersion",
    "gsp": "nvmlDeviceGetGspFirmwareVersion",
    "cuda_cores": "nvmlDeviceGetNumGpuCores",
}


def _field(pynvml: "Any", handle: "Any", number: int, scope: int = 0) -> int:
    """Return the unsigned value of a field; raise NVMLError if NVML reports one."""
    found = pynvml.nvmlDeviceGetFieldValues(handle, [(number, scope)])[0]
    if found.nvmlReturn:
        raise pynvml.NVMLError(found.nvmlReturn)
    return int(found.value.uiVal)


def _memory(pynvml: "Any", handle: "Any") -> "Dict[str, int]":
    found = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
    return {"total_bytes": found.total, "reserved_bytes": found.reserved, "used_bytes": found.used}


def _sram(pynvml: "Any", handle: "Any") -> "Dict[str, int]":
    import ctypes

    found = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(found))
    return {
        "volatile_corrected": found.volatileCor,
        "volatile_uncorrected": found.volatileUncParity + found.volatileUncSecDed,
        "aggregate_corrected": found.aggregateCor,
        "aggregate_uncorrected": found.aggregateUncParity + found.aggregateUncSecDed,
        "threshold_exceeded": found.bThresholdExceeded,
    }


def _banks(pynvml: "Any", handle: "Any") -> "List[int]":
    found = pynvml.nvmlDeviceGetRowRemapperHistogram(handle)
    return [found.max, found.high, found.partial, found.low, found.none]


def _fabric(pynvml: "Any", handle: "Any") -> "Dict[str, Any]":
    import ctypes

    try:
        found = pynvml.c_nvmlGpuFabricInfoV_t()
        pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(found))
    except (AttributeError, pynvml.NVMLError):  # a driver before 535
        found = pynvml.c_nvmlGpuFabricInfo_t()
        pynvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(found))
    uuid = bytes(bytearray(found.clusterUuid)).hex()
    return {
        "state": found.state,
        "status": found.status,
        "clique": found.cliqueId,
        "cluster_uuid": "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:])),
        "health_mask": getattr(found, "healthMask", None),
    }


def _processes(pynvml: "Any", handle: "Any") -> "List[Dict[str, Any]]":
    """Return the compute processes, with program names instead of command lines."""
    found = []
    try:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLLibraryMismatchError:  # a driver before 510
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    for process in processes:
        try:
            name = pynvml.nvmlSystemGetProcessName(process.pid)
            name = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
        except pynvml.NVMLError:
            name = ""
        base = (name.split() or [""])[0].rsplit("/", 1)[-1]
        found.append({"pid": process.pid, "name": base, "used_bytes": process.usedGpuMemory})
    return found


def _links(pynvml: "Any", handle: "Any") -> "Dict[str, Any]":
    """Return the state of every NVLink, and their common rate in MB/s per direction."""
    active = []
    for link in range(_field(pynvml, handle, 91)):
        try:
            active.append(pynvml.nvmlDeviceGetNvLinkState(handle, link))
        except pynvml.NVMLError as error:
            active.append(str(error))
    try:
        speed: Any = _field(pynvml, handle, 90)
    except pynvml.NVMLError as error:
        speed = str(error)
    return {"active": active, "speed_mbytes_s": speed}


#: NVML's field ids of a link's errors: replays, recoveries, CRC errors; from NVLink 5 on, malformed packets, buffer
#: overruns, receive errors, integrity errors, failed recoveries, all recoveries, effective errors.
_LINK_ERRORS = (161, 162, 163), (206, 207, 208, 211, 214, 215, 219)


def _link_errors(pynvml: "Any", handle: "Any") -> "Dict[str, Dict[str, int]]":
    """Return link -> field -> count; raise NVMLError if none is available.

    Nothing is read if ``nvidia-smi`` exists, which prints the same counts.
    """
    import shutil

    links = range(0 if shutil.which("nvidia-smi") else _field(pynvml, handle, 91))
    for fields in _LINK_ERRORS:
        counts: "Dict[str, Dict[str, int]]" = {}
        wanted = [(field, link) for link in links for field in fields]
        for field in pynvml.nvmlDeviceGetFieldValues(handle, wanted) if wanted else ():
            if not field.nvmlReturn:
                value = field.value
                number = {1: value.uiVal, 2: value.ulVal, 3: value.ullVal}.get(field.valueType)
                if number is not None:
                    counts.setdefault(str(field.scopeId), {})[str(field.fieldId)] = int(number)
        if counts:
            return counts
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _utilisation(pynvml: "Any", handle: "Any") -> "List[int]":
    found = pynvml.nvmlDeviceGetUtilizationRates(handle)
    return [found.gpu, found.memory]


_CALLS: "Dict[str, Callable[[Any, Any], Any]]" = {
    "memory_total_bytes": lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total),
    "memory": _memory,
    "bar1_total_bytes": lambda nvml, gpu: int(nvml.nvmlDeviceGetBAR1MemoryInfo(gpu).bar1Total),
    "sram": _sram,
    "remap_banks": _banks,
    "retired_pages": lambda nvml, gpu: [len(nvml.nvmlDeviceGetRetiredPages(gpu, cause)) for cause in (0, 1)],
    "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, 0),
    "temperature_slowdown_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperatureThreshold(gpu, 1),
    "sm_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, 1),
    "sm_clock_max_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, 1),
    "application_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetApplicationsClock(gpu, 1),
    "application_clock_default_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetDefaultApplicationsClock(gpu, 1),
    "fabric": _fabric,
    "recovery_action": lambda nvml, gpu: _field(nvml, gpu, 230),
    "utilisation": _utilisation,
    "processes": _processes,
    "nvlink": _links,
    "nvlink_errors": _link_errors,
}


#: Calls allowed in a plan.
CALLS = {"gpus": gpus}
