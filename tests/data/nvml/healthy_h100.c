/* A stand-in for libnvidia-ml.so.1: two idle H100, made by hand after nvml.h (structures and numbers of its enums).
 * GPU 1 has one NVLink down, waits for a row remapping, and runs one process. Nothing was recorded on hardware. */
#include <string.h>
typedef unsigned int u32;
typedef unsigned long long u64;
typedef void *dev;
#define OK 0
#define NOT_SUPPORTED 3
#define SECOND(d) ((d) == (dev)2)
#define TEXT(name, text) int name(dev d, char *s, u32 n) { strncpy(s, text, n); return OK; }
#define NUMBER(name, value) int name(dev d, u32 *v) { *v = (value); return OK; }
#define PAIR(name, a, b) int name(dev d, u32 *x, u32 *y) { *x = (a); *y = (b); return OK; }

int nvmlInitWithFlags(u32 f) { return OK; }
int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int e) { return e == NOT_SUPPORTED ? "Not Supported" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *s, u32 n) { strncpy(s, "570.124.06", n); return OK; }
int nvmlSystemGetCudaDriverVersion(int *v) { *v = 12080; return OK; }
int nvmlDeviceGetCount_v2(u32 *n) { *n = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(u32 i, dev *d) { *d = (dev)(unsigned long)(i + 1); return OK; }
struct pci { char old[16]; u32 domain, bus, device, id, sub; char busid[32]; };
int nvmlDeviceGetPciInfo_v3(dev d, struct pci *p) {
    memset(p, 0, sizeof *p);
    p->id = 0x233010de;
    strcpy(p->busid, SECOND(d) ? "00000000:43:00.0" : "00000000:1B:00.0");
    return OK;
}
TEXT(nvmlDeviceGetName, "NVIDIA H100 80GB HBM3")
TEXT(nvmlDeviceGetUUID, SECOND(d) ? "GPU-2" : "GPU-1")
TEXT(nvmlDeviceGetVbiosVersion, "96.00.74.00.01")
TEXT(nvmlDeviceGetInforomImageVersion, "G520.0200.00.05")
int nvmlDeviceGetGspFirmwareVersion(dev d, char *s) { strcpy(s, "570.124.06"); return OK; }
int nvmlDeviceGetMemoryInfo(dev d, u64 *m) { m[0] = 85520809984ULL; m[1] = m[2] = 0; return OK; }
struct memory { u32 version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(dev d, struct memory *m) {
    if (m->version != 0x02000028) return 25;
    m->total = 85520809984ULL; m->reserved = 551ULL << 20; m->used = 4ULL << 20; m->free = 0;
    return OK;
}
int nvmlDeviceGetBAR1MemoryInfo(dev d, u64 *m) { m[0] = 131072ULL << 20; return OK; }
NUMBER(nvmlDeviceGetPersistenceMode, 1)
PAIR(nvmlDeviceGetMigMode, 0, 0)
PAIR(nvmlDeviceGetEccMode, 1, 1)
int nvmlDeviceGetMemoryErrorCounter(dev d, int type, int counter, int location, u64 *n) {
    *n = 0;
    return location == 2 || location == 7 ? OK : NOT_SUPPORTED;
}
struct sram { u32 version; u64 aup, aus, ac, vup, vus, vc, buckets[5]; u32 exceeded; };
int nvmlDeviceGetSramEccErrorStatus(dev d, struct sram *s) { memset(&s->aup, 0, sizeof *s - 8); return OK; }
int nvmlDeviceGetRemappedRows(dev d, u32 *c, u32 *u, u32 *p, u32 *f) {
    *c = *f = 0; *u = *p = SECOND(d);
    return OK;
}
int nvmlDeviceGetRowRemapperHistogram(dev d, u32 *v) { memset(v, 0, 20); v[0] = 2560; return OK; }
int nvmlDeviceGetRetiredPages(dev d, int cause, u32 *n, u64 *pages) { return NOT_SUPPORTED; }
int nvmlDeviceGetRetiredPagesPendingStatus(dev d, u32 *v) { return NOT_SUPPORTED; }
int nvmlDeviceGetCurrentClocksThrottleReasons(dev d, u64 *v) { *v = 1; return OK; }
NUMBER(nvmlDeviceGetPowerManagementLimit, 700000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, 700000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, 700000)
int nvmlDeviceGetTemperature(dev d, int sensor, u32 *t) { *t = 31; return OK; }
int nvmlDeviceGetTemperatureThreshold(dev d, int which, u32 *t) { return NOT_SUPPORTED; }
struct margin { u32 version; int margin; };
int nvmlDeviceGetMarginTemperature(dev d, struct margin *m) { m->margin = 56; return OK; }
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetPerformanceState, 0)
NUMBER(nvmlDeviceGetComputeMode, 0)
NUMBER(nvmlDeviceGetNumGpuCores, 16896)
int nvmlDeviceGetClockInfo(dev d, int which, u32 *mhz) { *mhz = 1980; return OK; }
int nvmlDeviceGetMaxClockInfo(dev d, int which, u32 *mhz) { *mhz = 1980; return OK; }
int nvmlDeviceGetUtilizationRates(dev d, u32 *v) { v[0] = v[1] = 0; return OK; }
struct fabric { u32 version; unsigned char uuid[16]; int status; u32 clique; unsigned char state; u32 mask; };
int nvmlDeviceGetGpuFabricInfoV(dev d, struct fabric *f) {
    memset(f->uuid, 0, 16); f->status = 0; f->clique = 0; f->state = 3; f->mask = 0x1AA;
    return OK;
}
struct value { u32 field, scope; long long at, latency; int type, result; union { u32 number; u64 wide; } value; };
int nvmlDeviceGetFieldValues(dev d, int count, struct value *v) {
    for (; count-- > 0; v++) {
        v->result = OK;
        v->type = 1;
        if (v->field == 230) v->value.number = 0;
        else if (v->field == 90) v->value.number = 26562;
        else if (v->field == 91) v->value.number = 18;
        else if (v->field >= 161 && v->field <= 163) {
            v->type = 3;
            v->value.wide = SECOND(d) && v->scope == 7 && v->field == 163 ? 4211 : 0;
        } else v->result = NOT_SUPPORTED;
    }
    return OK;
}
int nvmlDeviceGetNvLinkState(dev d, u32 link, u32 *active) { *active = !(SECOND(d) && link == 4); return OK; }
struct process { u32 pid; u64 used; u32 gi, ci; };
int nvmlDeviceGetComputeRunningProcesses_v3(dev d, u32 *n, struct process *p) {
    if (!SECOND(d)) { *n = 0; return OK; }
    if (*n < 1) { *n = 1; return 7; }
    *n = 1; p->pid = 4711; p->used = 1024ULL << 20;
    return OK;
}
int nvmlSystemGetProcessName(u32 pid, char *s, u32 n) { strncpy(s, "/usr/bin/python3 train.py --token=x", n); return OK; }
