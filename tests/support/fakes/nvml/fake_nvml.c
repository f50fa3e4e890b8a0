/* fake_nvml.c - a pretend libnvidia-ml.so.1 for tests on machines without a GPU.
 *
 *   gcc -O1 -Wall -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 fake_nvml.c
 *   FAKE_NVML_STATE=/path/state.txt LD_LIBRARY_PATH=/dir/of/the/lib  python ...
 *
 * (DIBS_FAKE_NVML_STATE will do too: a daemon hands on what begins with DIBS_.)
 *
 * The state file is read again on EVERY call, so a test changes the pretend world by
 * rewriting it (write a temp file, then rename: never half a file).  One record a line:
 *
 *   system  driver=570.124.06 nvml=12.570.124.06 cuda=12080 [init=9] [noise=TEXT]   (printed on stdout)
 *   gpu  0  uuid=GPU-... name=NVIDIA_A100-SXM4-80GB total=85899345920 used=.. reserved=..
 *           util=0 memutil=0 temp=35 power=60000 plimit=400000 persist=1 minor=0
 *           bus=00000000:07:00.0 mig=0 ecc=0 uncorr=0 numa=0 lost=0 cc=80 mode=0 (compute mode)
 *           pending=0 failed=0 (rows to be remapped) retired=0 (pages pending) recover=0 (what the driver wants)
 *   proc 0  pid=4242 mem=1073741824 [kind=C|G|M] [gi=1 ci=0]
 *   mig  0  uuid=MIG-... gi=1 ci=0 total=.. used=.. slices=1   (order of lines = MIG index)
 *   link 0 1 level=20 [nvlinks=12]             (level: 0,10,20,30,40,50; default 50)
 *   event 0 seq=1 type=8 data=79               (handed out once per event set, by seq)
 *   fail NAME 0 code=15                        (NAME = C symbol; GPU number or * for any)
 *   slow NAME 0 ms=200                         (NAME or *: sleep before answering; GPU number or * for any)
 *
 * '_' in name= becomes a space.  '#' starts a comment.  Unknown keys are ignored.
 * FAKE_NVML_LOG=/path : append "pid symbol index rc" for each call.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <stdint.h>
#include <unistd.h>
#include <time.h>
#include <pthread.h>

typedef unsigned long long u64;
typedef unsigned int u32;
typedef void *dev_t_;
enum { OK = 0, UNINIT = 1, INVAL = 2, NOSUP = 3, NOTFOUND = 6, TOOSMALL = 7, TIMEOUT = 10, LOST = 15 };

#define MAXGPU 32
#define MAXPROC 256
#define MAXMIG 8
#define MAXMISC 128
typedef struct { char uuid[96], name[96], bus[32]; u64 total, used, reserved, ecc, uncorr; u32 util, memutil, temp, power, plimit,
                 persist, minor, mig, numa, lost, cc, mode, pending, failed, retired, recover, set; } gpu_t;
typedef struct { int gpu; u32 pid, gi, ci; u64 mem; char kind; } proc_t;
typedef struct { int gpu; char uuid[96]; u32 gi, ci, slices; u64 total, used; } mig_t;
typedef struct { int a, b; u32 level, nvlinks; } link_t_;
typedef struct { int gpu; u32 seq; u64 type, data; } event_t;
typedef struct { char sym[64]; int gpu; int code; } fail_t;
typedef struct {
    char driver[80], nvml[80], noise[80]; int cuda, init;
    gpu_t g[MAXGPU]; int ng; proc_t p[MAXPROC]; int np; mig_t m[MAXGPU * MAXMIG]; int nm;
    link_t_ l[MAXGPU * MAXGPU]; int nl; event_t e[MAXMISC]; int ne; fail_t f[MAXMISC]; int nf; fail_t s[MAXMISC]; int ns;
} world_t;

static int inited;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

static const char *val(char *line, const char *key, char *out, size_t n) {
    size_t k = strlen(key);
    for (char *q = line; (q = strstr(q, key)); q += k)
        if ((q == line || q[-1] == ' ' || q[-1] == '\t') && q[k] == '=') {
            q += k + 1; size_t i = 0;
            while (*q && *q != ' ' && *q != '\t' && *q != '\n' && i + 1 < n) out[i++] = *q++;
            out[i] = 0; return out;
        }
    return NULL;
}
static u64 num(char *line, const char *key, u64 dflt) { char b[64]; return val(line, key, b, sizeof b) ? strtoull(b, NULL, 0) : dflt; }
static void txt(char *line, const char *key, char *dst, size_t n) { char b[128]; if (val(line, key, b, sizeof b)) snprintf(dst, n, "%s", b); }

static world_t *load(void) {                       /* caller frees */
    world_t *w = calloc(1, sizeof *w);
    strcpy(w->driver, "570.124.06"); strcpy(w->nvml, "12.570.124.06"); w->cuda = 12080;
    const char *path = getenv("FAKE_NVML_STATE"); if (!path) path = getenv("DIBS_FAKE_NVML_STATE");
    FILE *f = path ? fopen(path, "r") : NULL;
    char line[1024], kind[16]; int a, b, n;
    while (f && fgets(line, sizeof line, f)) {
        char *h = strchr(line, '#'); if (h) *h = 0;
        if (sscanf(line, "%15s%n", kind, &n) != 1) continue;
        char *rest = line + n;
        if (!strcmp(kind, "system")) { txt(rest, "driver", w->driver, 80); txt(rest, "nvml", w->nvml, 80); txt(rest, "noise", w->noise, 80); w->cuda = num(rest, "cuda", 12080); w->init = num(rest, "init", 0); }
        else if (!strcmp(kind, "gpu") && sscanf(rest, "%d", &a) == 1 && a >= 0 && a < MAXGPU) {
            gpu_t *g = &w->g[a]; if (a + 1 > w->ng) w->ng = a + 1;
            g->set = 1; strcpy(g->name, "Fake GPU"); snprintf(g->uuid, 96, "GPU-00000000-0000-0000-0000-%012d", a); snprintf(g->bus, 32, "00000000:%02X:00.0", a + 1);
            txt(rest, "uuid", g->uuid, 96); txt(rest, "name", g->name, 96); txt(rest, "bus", g->bus, 32);
            for (char *c = g->name; *c; c++) if (*c == '_') *c = ' ';
            g->total = num(rest, "total", 24ull << 30); g->used = num(rest, "used", 0); g->reserved = num(rest, "reserved", 0);
            g->util = num(rest, "util", 0); g->memutil = num(rest, "memutil", 0); g->temp = num(rest, "temp", 30); g->power = num(rest, "power", 30000);
            g->plimit = num(rest, "plimit", 300000); g->persist = num(rest, "persist", 1); g->minor = num(rest, "minor", a); g->mig = num(rest, "mig", 2);
            g->ecc = num(rest, "ecc", 0); g->uncorr = num(rest, "uncorr", 0); g->numa = num(rest, "numa", 0); g->lost = num(rest, "lost", 0); g->cc = num(rest, "cc", 80);
            g->mode = num(rest, "mode", 0); g->pending = num(rest, "pending", 0); g->failed = num(rest, "failed", 0); g->retired = num(rest, "retired", 0); g->recover = num(rest, "recover", 0);
        } else if (!strcmp(kind, "proc") && w->np < MAXPROC && sscanf(rest, "%d", &a) == 1) {
            char k[8] = "C"; val(rest, "kind", k, 8);
            w->p[w->np++] = (proc_t){ a, num(rest, "pid", 0), num(rest, "gi", ~0u), num(rest, "ci", ~0u), num(rest, "mem", ~0ull), k[0] };
        } else if (!strcmp(kind, "mig") && w->nm < MAXGPU * MAXMIG && sscanf(rest, "%d", &a) == 1) {
            mig_t *m = &w->m[w->nm++]; m->gpu = a; m->gi = num(rest, "gi", w->nm); m->ci = num(rest, "ci", 0); m->slices = num(rest, "slices", 1);
            snprintf(m->uuid, 96, "MIG-00000000-0000-0000-%04d-%012d", a, w->nm); txt(rest, "uuid", m->uuid, 96); m->total = num(rest, "total", 10ull << 30); m->used = num(rest, "used", 0);
        } else if (!strcmp(kind, "link") && w->nl < MAXGPU * MAXGPU && sscanf(rest, "%d %d", &a, &b) == 2)
            w->l[w->nl++] = (link_t_){ a, b, num(rest, "level", 50), num(rest, "nvlinks", 0) };
        else if (!strcmp(kind, "event") && w->ne < MAXMISC && sscanf(rest, "%d", &a) == 1)
            w->e[w->ne++] = (event_t){ a, num(rest, "seq", w->ne), num(rest, "type", 8), num(rest, "data", 0) };
        else if ((!strcmp(kind, "fail") && w->nf < MAXMISC) || (!strcmp(kind, "slow") && w->ns < MAXMISC)) {
            fail_t x = { "", -1, 0 }; char g[16] = "*";
            if (sscanf(rest, "%63s %15s", x.sym, g) >= 1) {
                x.gpu = (g[0] >= '0' && g[0] <= '9') ? atoi(g) : -1;
                if (kind[0] == 'f') { x.code = num(rest, "code", 999); w->f[w->nf++] = x; } else { x.code = num(rest, "ms", 0); w->s[w->ns++] = x; }
            }
        }
    }
    if (f) fclose(f);
    return w;
}

/* handles are numbers, never pointers to memory: GPU i -> 0x10000+i ; MIG j of the list -> 0x20000+j */
#define HG(i) ((dev_t_)(uintptr_t)(0x10000 + (i)))
#define HM(j) ((dev_t_)(uintptr_t)(0x20000 + (j)))
static int gidx(world_t *w, dev_t_ h, int *mig) {
    uintptr_t v = (uintptr_t)h; if (mig) *mig = -1;
    if (v >= 0x20000 && v < 0x20000 + (uintptr_t)w->nm) { if (mig) *mig = (int)(v - 0x20000); return w->m[v - 0x20000].gpu; }
    if (v >= 0x10000 && v < 0x10000 + (uintptr_t)w->ng) return (int)(v - 0x10000);
    return -1;
}
static int done(world_t *w, const char *sym, int gi, int rc) {
    const char *lp = getenv("FAKE_NVML_LOG");
    if (lp) { FILE *f = fopen(lp, "a"); if (f) { fprintf(f, "%d %s %d %d\n", (int)getpid(), sym, gi, rc); fclose(f); } }
    free(w); return rc;
}
static int gate(world_t *w, const char *sym, int gi) {     /* injected delay and failures, then "fell off the bus" */
    for (int i = 0; i < w->ns; i++) if ((!strcmp(w->s[i].sym, sym) || w->s[i].sym[0] == '*') && (w->s[i].gpu < 0 || w->s[i].gpu == gi)) { struct timespec t = { w->s[i].code / 1000, (w->s[i].code % 1000) * 1000000L }; nanosleep(&t, NULL); }
    for (int i = 0; i < w->nf; i++) if ((!strcmp(w->f[i].sym, sym) || w->f[i].sym[0] == '*') && (w->f[i].gpu < 0 || w->f[i].gpu == gi)) return w->f[i].code;
    return OK;
}
#define API __attribute__((visibility("default"))) int
/* SYS: a call about no device.  DEV: about device d; the body sees w, g, gi, mi (MIG number or -1), rc. */
#define SYS(name, params, ...) API name params { const char *sym = #name; world_t *w = load(); int rc = inited ? gate(w, sym, -1) : UNINIT; \
    if (!rc) { __VA_ARGS__; } \
    return done(w, sym, -1, rc); }
#define DEV(name, params, ...) API name params { const char *sym = #name; world_t *w = load(); int mi, gi = gidx(w, d, &mi); gpu_t *g = &w->g[gi < 0 ? 0 : gi]; \
    int rc = !inited ? UNINIT : gi < 0 ? INVAL : gate(w, sym, gi); \
    if (!rc && g->lost) rc = LOST; \
    if (!rc) { __VA_ARGS__; } \
    return done(w, sym, gi, rc); }
static int put(char *dst, u32 n, const char *src) { if (strlen(src) + 1 > n) return TOOSMALL; strcpy(dst, src); return OK; }

/* ---- life cycle, system ------------------------------------------------------------------ */
static int init_(const char *sym) { world_t *w = load(); if (w->noise[0]) { puts(w->noise); fflush(stdout); } int rc = w->init ? w->init : gate(w, sym, -1); if (!rc) __sync_fetch_and_add(&inited, 1); return done(w, sym, -1, rc); }
API nvmlInitWithFlags(u32 fl) { (void)fl; return init_("nvmlInitWithFlags"); }
API nvmlInit_v2(void) { return init_("nvmlInit_v2"); }
API nvmlShutdown(void) { if (!inited) return UNINIT; __sync_fetch_and_sub(&inited, 1); return done(load(), "nvmlShutdown", -1, OK); }
__attribute__((visibility("default"))) const char *nvmlErrorString(int r) { static char b[32]; snprintf(b, 32, "fake NVML error %d", r); return b; }
SYS(nvmlSystemGetDriverVersion, (char *s, u32 n), rc = put(s, n, w->driver))
SYS(nvmlSystemGetNVMLVersion, (char *s, u32 n), rc = put(s, n, w->nvml))
SYS(nvmlSystemGetCudaDriverVersion, (int *v), *v = w->cuda)
SYS(nvmlSystemGetCudaDriverVersion_v2, (int *v), *v = w->cuda)
SYS(nvmlSystemGetProcessName, (u32 pid, char *s, u32 n), { char p[64], b[512] = ""; snprintf(p, 64, "/proc/%u/cmdline", pid); FILE *f = fopen(p, "r"); \
    if (!f) rc = NOTFOUND; else { size_t k = fread(b, 1, 511, f); b[k] = 0; fclose(f); rc = put(s, n, b); } })
SYS(nvmlDeviceGetCount_v2, (u32 *n), *n = w->ng)

/* ---- handles ------------------------------------------------------------------------------ */
SYS(nvmlDeviceGetHandleByIndex_v2, (u32 i, dev_t_ *h), { rc = gate(w, sym, (int)i); if (rc) ; else if (i >= (u32)w->ng) rc = INVAL; else if (w->g[i].lost) rc = LOST; else *h = HG(i); })
SYS(nvmlDeviceGetHandleByUUID, (const char *u, dev_t_ *h), { rc = NOTFOUND; for (int i = 0; i < w->ng; i++) if (!strcmp(w->g[i].uuid, u)) { *h = HG(i); rc = OK; } \
    for (int j = 0; j < w->nm; j++) if (!strcmp(w->m[j].uuid, u)) { *h = HM(j); rc = OK; } })
SYS(nvmlDeviceGetHandleByPciBusId_v2, (const char *b, dev_t_ *h), { rc = NOTFOUND; for (int i = 0; i < w->ng; i++) if (!strcasecmp(w->g[i].bus, b)) { *h = HG(i); rc = OK; } })
DEV(nvmlDeviceGetIndex, (dev_t_ d, u32 *i), *i = gi)
DEV(nvmlDeviceGetUUID, (dev_t_ d, char *s, u32 n), rc = put(s, n, mi >= 0 ? w->m[mi].uuid : g->uuid))
DEV(nvmlDeviceGetName, (dev_t_ d, char *s, u32 n), rc = put(s, n, g->name))
DEV(nvmlDeviceGetMinorNumber, (dev_t_ d, u32 *m), *m = g->minor)
DEV(nvmlDeviceGetSerial, (dev_t_ d, char *s, u32 n), rc = NOSUP)
typedef struct { char old[16]; u32 domain, bus, device, id, sub; char busId[32]; } pci_t;
static void fillpci(pci_t *p, gpu_t *g) { memset(p, 0, sizeof *p); sscanf(g->bus, "%x:%x:%x", &p->domain, &p->bus, &p->device); snprintf(p->busId, 32, "%s", g->bus); snprintf(p->old, 16, "%s", g->bus + 4); p->id = 0x20B210DE; }
DEV(nvmlDeviceGetPciInfo_v3, (dev_t_ d, pci_t *p), fillpci(p, g))

/* ---- load, memory, heat ------------------------------------------------------------------- */
typedef struct { u64 total, free, used; } mem1_t; typedef struct { u32 version; u64 total, reserved, free, used; } mem2_t; typedef struct { u32 gpu, mem; } util_t;
DEV(nvmlDeviceGetMemoryInfo, (dev_t_ d, mem1_t *m), { m->total = mi >= 0 ? w->m[mi].total : g->total; m->used = mi >= 0 ? w->m[mi].used : g->used + g->reserved; m->free = m->total - m->used; })
DEV(nvmlDeviceGetMemoryInfo_v2, (dev_t_ d, mem2_t *m), { if (m->version != 0x02000028) rc = 25; else { m->total = mi >= 0 ? w->m[mi].total : g->total; m->reserved = mi >= 0 ? 0 : g->reserved; \
    m->used = mi >= 0 ? w->m[mi].used : g->used; m->free = m->total - m->used - m->reserved; } })
DEV(nvmlDeviceGetBAR1MemoryInfo, (dev_t_ d, mem1_t *m), { m->total = 256 << 20; m->used = 2 << 20; m->free = m->total - m->used; })
DEV(nvmlDeviceGetUtilizationRates, (dev_t_ d, util_t *u), { if (mi >= 0 || g->mig == 1) rc = NOSUP; else { u->gpu = g->util; u->mem = g->memutil; } })
DEV(nvmlDeviceGetEncoderUtilization, (dev_t_ d, u32 *u, u32 *p), { *u = 0; *p = 1000000; })
DEV(nvmlDeviceGetDecoderUtilization, (dev_t_ d, u32 *u, u32 *p), { *u = 0; *p = 1000000; })
DEV(nvmlDeviceGetTemperature, (dev_t_ d, int s, u32 *t), *t = g->temp)
DEV(nvmlDeviceGetTemperatureV, (dev_t_ d, int *t), t[2] = g->temp)
DEV(nvmlDeviceGetPowerUsage, (dev_t_ d, u32 *p), *p = g->power)
DEV(nvmlDeviceGetEnforcedPowerLimit, (dev_t_ d, u32 *p), *p = g->plimit)
DEV(nvmlDeviceGetPowerManagementLimit, (dev_t_ d, u32 *p), *p = g->plimit)
DEV(nvmlDeviceGetFanSpeed, (dev_t_ d, u32 *p), rc = NOSUP)
DEV(nvmlDeviceGetPersistenceMode, (dev_t_ d, u32 *p), *p = g->persist)
DEV(nvmlDeviceGetPerformanceState, (dev_t_ d, u32 *p), *p = g->util ? 0 : 8)
DEV(nvmlDeviceGetDriverModel, (dev_t_ d, u32 *c, u32 *p), rc = NOSUP)          /* Windows only */
DEV(nvmlDeviceGetDriverModel_v2, (dev_t_ d, u32 *c, u32 *p), rc = NOSUP)
DEV(nvmlDeviceGetComputeMode, (dev_t_ d, u32 *p), *p = g->mode)
DEV(nvmlDeviceGetDisplayActive, (dev_t_ d, u32 *p), *p = 0)
DEV(nvmlDeviceGetDisplayMode, (dev_t_ d, u32 *p), *p = 0)
DEV(nvmlDeviceGetClockInfo, (dev_t_ d, u32 t, u32 *c), *c = g->util ? 1410 : 210)
DEV(nvmlDeviceGetMaxClockInfo, (dev_t_ d, u32 t, u32 *c), *c = 1410)
DEV(nvmlDeviceGetCudaComputeCapability, (dev_t_ d, int *a, int *b), { *a = g->cc / 10; *b = g->cc % 10; })
DEV(nvmlDeviceGetNumaNodeId, (dev_t_ d, u32 *n), *n = g->numa)
DEV(nvmlDeviceGetPcieThroughput, (dev_t_ d, u32 c, u32 *v), *v = 0)

/* ---- processes ---------------------------------------------------------------------------- */
typedef struct { u32 pid; u64 mem; u32 gi, ci; } pinfo_t;
static int plist(world_t *w, int gi, int mi, char kind, u32 *n, pinfo_t *out) {
    u32 have = 0, cap = *n;
    for (int i = 0; i < w->np; i++) {
        proc_t *p = &w->p[i];
        if (p->gpu != gi || p->kind != kind || (mi >= 0 && p->gi != w->m[mi].gi)) continue;
        if (have < cap && out) out[have] = (pinfo_t){ p->pid, p->mem, p->gi, p->ci };
        have++;
    }
    *n = have; return (have > cap || (have && !out)) ? TOOSMALL : OK;
}
#define PROCS(name, kind) DEV(name, (dev_t_ d, u32 *n, pinfo_t *o), rc = plist(w, gi, mi, kind, n, o))
PROCS(nvmlDeviceGetComputeRunningProcesses_v3, 'C') PROCS(nvmlDeviceGetComputeRunningProcesses_v2, 'C')
PROCS(nvmlDeviceGetGraphicsRunningProcesses_v3, 'G') PROCS(nvmlDeviceGetGraphicsRunningProcesses_v2, 'G')
PROCS(nvmlDeviceGetMPSComputeRunningProcesses_v3, 'M')
typedef struct { u32 pid; u64 ts; u32 sm, mem, enc, dec; } psample_t;
DEV(nvmlDeviceGetProcessUtilization, (dev_t_ d, psample_t *o, u32 *n, u64 last), { u32 have = 0, cap = *n; struct timespec t; clock_gettime(CLOCK_REALTIME, &t); \
    for (int i = 0; i < w->np; i++) if (w->p[i].gpu == gi) { if (o && have < cap) o[have] = (psample_t){ w->p[i].pid, t.tv_sec * 1000000ull, g->util, g->memutil, 0, 0 }; have++; } \
    *n = have; rc = (have > cap || (have && !o)) ? TOOSMALL : have ? OK : NOTFOUND; })

/* ---- MIG ---------------------------------------------------------------------------------- */
DEV(nvmlDeviceGetMigMode, (dev_t_ d, u32 *c, u32 *p), { if (g->mig > 1) rc = NOSUP; else *c = *p = g->mig; })
DEV(nvmlDeviceGetMaxMigDeviceCount, (dev_t_ d, u32 *n), *n = g->mig == 1 ? 7 : 0)
DEV(nvmlDeviceGetMigDeviceHandleByIndex, (dev_t_ d, u32 i, dev_t_ *h), { rc = NOTFOUND; u32 k = 0; for (int j = 0; j < w->nm; j++) if (w->m[j].gpu == gi && k++ == i) { *h = HM(j); rc = OK; } })
DEV(nvmlDeviceIsMigDeviceHandle, (dev_t_ d, u32 *b), *b = mi >= 0)
DEV(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (dev_t_ d, dev_t_ *h), { if (mi < 0) rc = INVAL; else *h = HG(gi); })
DEV(nvmlDeviceGetGpuInstanceId, (dev_t_ d, u32 *i), { if (mi < 0) rc = INVAL; else *i = w->m[mi].gi; })
DEV(nvmlDeviceGetComputeInstanceId, (dev_t_ d, u32 *i), { if (mi < 0) rc = INVAL; else *i = w->m[mi].ci; })
typedef struct { u32 sm, ce, dec, enc, jpeg, ofa, gislice, cislice; u64 mb; } attr_t;
DEV(nvmlDeviceGetAttributes_v2, (dev_t_ d, attr_t *a), { if (mi < 0) rc = NOSUP; else { memset(a, 0, sizeof *a); a->sm = 14 * w->m[mi].slices; a->gislice = a->cislice = w->m[mi].slices; a->mb = w->m[mi].total >> 20; } })

/* ---- topology ----------------------------------------------------------------------------- */
static link_t_ *lnk(world_t *w, int a, int b) { for (int i = 0; i < w->nl; i++) if ((w->l[i].a == a && w->l[i].b == b) || (w->l[i].a == b && w->l[i].b == a)) return &w->l[i]; return NULL; }
DEV(nvmlDeviceGetTopologyCommonAncestor, (dev_t_ d, dev_t_ e, u32 *lv), { int o = gidx(w, e, NULL); link_t_ *l = lnk(w, gi, o); if (o < 0) rc = INVAL; else *lv = o == gi ? 0 : l ? l->level : 50; })
DEV(nvmlDeviceGetP2PStatus, (dev_t_ d, dev_t_ e, u32 ix, u32 *st), { int o = gidx(w, e, NULL); link_t_ *l = lnk(w, gi, o); *st = (ix == 2 && !(l && l->nvlinks)) ? 5 : 0; })
static link_t_ *nthlink(world_t *w, int gi, u32 n, int *other) {   /* NVLink n of this GPU: links counted in file order */
    for (int i = 0; i < w->nl; i++) if (w->l[i].a == gi || w->l[i].b == gi) { if (n < w->l[i].nvlinks) { *other = w->l[i].a == gi ? w->l[i].b : w->l[i].a; return &w->l[i]; } n -= w->l[i].nvlinks; }
    return NULL;
}
DEV(nvmlDeviceGetNvLinkState, (dev_t_ d, u32 n, u32 *on), { int o; if (n >= 36) rc = INVAL; else if (!nthlink(w, gi, n, &o)) { *on = 0; rc = NOSUP; } else *on = 1; })
DEV(nvmlDeviceGetNvLinkRemotePciInfo_v2, (dev_t_ d, u32 n, pci_t *p), { int o; if (!nthlink(w, gi, n, &o)) rc = NOSUP; else fillpci(p, &w->g[o]); })

/* ---- health ------------------------------------------------------------------------------- */
DEV(nvmlDeviceGetEccMode, (dev_t_ d, u32 *c, u32 *p), { *c = *p = 1; })
DEV(nvmlDeviceGetTotalEccErrors, (dev_t_ d, u32 t, u32 k, u64 *n), *n = t ? g->uncorr : g->ecc)
DEV(nvmlDeviceGetMemoryErrorCounter, (dev_t_ d, u32 t, u32 k, u32 l, u64 *n), *n = t ? g->uncorr : g->ecc)
DEV(nvmlDeviceGetRemappedRows, (dev_t_ d, u32 *c, u32 *u, u32 *pend, u32 *failed), { *c = *u = 0; *pend = g->pending; *failed = g->failed; })
DEV(nvmlDeviceGetRetiredPagesPendingStatus, (dev_t_ d, u32 *p), *p = g->retired)
DEV(nvmlDeviceGetSupportedEventTypes, (dev_t_ d, u64 *t), *t = 1 | 2 | 8)
typedef struct { u64 mask[MAXGPU]; u32 seen; } evset_t;
typedef struct { dev_t_ d; u64 type, data; u32 gi, ci; } evdata_t;
SYS(nvmlEventSetCreate, (evset_t **s), { *s = calloc(1, sizeof **s); })
SYS(nvmlEventSetFree, (evset_t *s), free(s))
DEV(nvmlDeviceRegisterEvents, (dev_t_ d, u64 m, evset_t *s), s->mask[gi] |= m)
API nvmlEventSetWait_v2(evset_t *s, evdata_t *out, u32 ms) {
    for (u32 waited = 0;; waited += 20) {
        world_t *w = load(); event_t *best = NULL; int rc = gate(w, "nvmlEventSetWait_v2", -1);
        if (rc) return done(w, "nvmlEventSetWait_v2", -1, rc);
        pthread_mutex_lock(&mu);
        for (int i = 0; i < w->ne; i++) { event_t *e = &w->e[i]; if (e->seq > s->seen && e->gpu >= 0 && e->gpu < MAXGPU && (s->mask[e->gpu] & e->type) && (!best || e->seq < best->seq)) best = e; }
        if (best) { s->seen = best->seq; *out = (evdata_t){ HG(best->gpu), best->type, best->data, ~0u, ~0u }; }
        pthread_mutex_unlock(&mu);
        if (best) return done(w, "nvmlEventSetWait_v2", best->gpu, OK);
        if (waited >= ms) return done(w, "nvmlEventSetWait_v2", -1, TIMEOUT);
        free(w); struct timespec t = { 0, 20000000 }; nanosleep(&t, NULL);
    }
}
/* field values: every field answers "not supported", as many consumer cards do, but for the recovery action where there is one */
typedef struct { u32 id, scope; long long ts, lat; u32 type, ret; union { double d; u64 u; } v; } field_t;
DEV(nvmlDeviceGetFieldValues, (dev_t_ d, int n, field_t *f), { for (int i = 0; i < n; i++) { f[i].ret = NOSUP; if (f[i].id == 230 && g->recover) { f[i].ret = OK; f[i].v.u = g->recover; } } })
