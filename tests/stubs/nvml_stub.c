/* A stand-in for NVIDIA's libnvidia-ml.so.1, driven by the text file that NVML_STUB_STATE names (read at every call):
 *   gpu  NAME UUID TOTAL_MIB USED_MIB UTILISATION ERROR     one line a GPU, in order; ERROR: an NVML code, 0 for none
 *   proc GPU PID MIB                                        MIB -1: the driver does not say
 *   link GPU GPU                                            joined by NVLink
 * Fields are separated by tabs. Without the file there is no driver. Build: gcc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_FOUND = 6, INSUFFICIENT = 7, NOT_LOADED = 9, NOT_SUPPORTED = 3, MANY = 64 };
typedef unsigned long long u64;
typedef struct { char name[96], uuid[96]; u64 total, used; unsigned util; int error; } gpu_t;
typedef struct { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; } proc_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;

static gpu_t gpus[MANY];
static struct { unsigned gpu; proc_t proc; } procs[MANY];
static struct { unsigned a, b; } links[MANY];
static unsigned n_gpus, n_procs, n_links;

static int load(void) {
    const char *path = getenv("NVML_STUB_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    long long mib;
    if (!file) return NOT_LOADED;
    n_gpus = n_procs = n_links = 0;
    while (fgets(line, sizeof line, file)) {
        gpu_t *g = &gpus[n_gpus];
        if (sscanf(line, "gpu\t%95[^\t]\t%95[^\t]\t%llu\t%llu\t%u\t%d", g->name, g->uuid, &g->total, &g->used, &g->util,
                   &g->error) == 6) n_gpus++;
        else if (sscanf(line, "proc\t%u\t%u\t%lld", &procs[n_procs].gpu, &procs[n_procs].proc.pid, &mib) == 3)
            procs[n_procs++].proc.memory = mib < 0 ? ~0ULL : (u64)mib << 20;
        else if (sscanf(line, "link\t%u\t%u", &links[n_links].a, &links[n_links].b) == 2) n_links++;
    }
    fclose(file);
    return OK;
}
static int of(void *device, unsigned *index) {
    int code = load();
    *index = (unsigned)(size_t)device - 1;
    return code ? code : *index >= n_gpus ? NOT_FOUND : gpus[*index].error;
}
static void bus_of(unsigned index, pci_t *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", index + 1);
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return load(); }
int nvmlInit_v2(void) { return load(); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "stub error"; }
int nvmlDeviceGetCount_v2(unsigned *count) { int code = load(); *count = n_gpus; return code; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    int code = load();
    *device = (void *)(size_t)(index + 1);
    return code ? code : index < n_gpus ? OK : NOT_FOUND;
}
int nvmlDeviceGetName(void *d, char *out, unsigned size) {
    unsigned i; int code = of(d, &i);
    if (!code) snprintf(out, size, "%s", gpus[i].name);
    return code;
}
int nvmlDeviceGetUUID(void *d, char *out, unsigned size) {
    unsigned i; int code = of(d, &i);
    if (!code) snprintf(out, size, "%s", gpus[i].uuid);
    return code;
}
int nvmlDeviceGetMemoryInfo(void *d, u64 *out) {
    unsigned i; int code = of(d, &i);
    if (!code) { out[0] = gpus[i].total << 20; out[1] = (gpus[i].total - gpus[i].used) << 20; out[2] = gpus[i].used << 20; }
    return code;
}
int nvmlDeviceGetMemoryInfo_v2(void *d, struct { unsigned version; u64 total, reserved, free, used; } *out) {
    unsigned i; int code = of(d, &i);
    if (!code) {
        out->total = gpus[i].total << 20; out->used = gpus[i].used << 20; out->reserved = 0;
        out->free = out->total - out->used;
    }
    return code;
}
int nvmlDeviceGetUtilizationRates(void *d, unsigned *out) {
    unsigned i; int code = of(d, &i);
    if (!code) { out[0] = gpus[i].util; out[1] = (unsigned)(gpus[i].used * 100 / (gpus[i].total ? gpus[i].total : 1)); }
    return code;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, proc_t *out) {
    unsigned i, room = *count, found = 0; int code = of(d, &i);
    if (code) return code;
    for (unsigned p = 0; p < n_procs; p++)
        if (procs[p].gpu == i) { if (out && found < room) out[found] = procs[p].proc; found++; }
    *count = found;
    return found > room ? INSUFFICIENT : OK;
}
int nvmlDeviceGetPciInfo_v3(void *d, pci_t *pci) {
    unsigned i; int code = of(d, &i);
    if (!code) bus_of(i, pci);
    return code;
}
static int peer_of(unsigned i, unsigned link, unsigned *peer) {
    for (unsigned l = 0; l < n_links; l++)
        if ((links[l].a == i || links[l].b == i) && link-- == 0) { *peer = links[l].a == i ? links[l].b : links[l].a; return 1; }
    return 0;
}
int nvmlDeviceGetNvLinkState(void *d, unsigned link, unsigned *active) {
    unsigned i, peer; int code = of(d, &i);
    if (code) return code;
    *active = peer_of(i, link, &peer);
    return *active ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *d, unsigned link, pci_t *pci) {
    unsigned i, peer = 0; int code = of(d, &i);
    if (!code && !peer_of(i, link, &peer)) return NOT_SUPPORTED;
    if (!code) bus_of(peer, pci);
    return code;
}
