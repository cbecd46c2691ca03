/* A stand-in for nccl-tests 2.19 on machines without a GPU.
 *
 * The times are those of real MPI collectives on host memory; the format of the output, the options and the exit
 * statuses are those of nccl-tests. Each device is called STUB, so that nobody takes the output for a recording.
 *
 * A process stands for all GPUs of -g, with one buffer. Files beside the binary make a host misbehave:
 * NAME.wrong (wrong values), NAME.fail (NCCL error), NAME.hang (never ends), NAME.deaf (nor does it heed SIGTERM).
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64 };

static size_t size_of(const char *text) {
  char *end;
  size_t size = strtoul(text, &end, 10);
  for (const char *unit = "KMG"; *end && *unit; unit++) {
    size <<= 10;
    if (*unit == *end) return size;
  }
  return size;
}

static char folder[4096], host[256];

static int has(const char *fault) {
  char path[8192];
  snprintf(path, sizeof path, "%s/%s.%s", folder, host, fault);
  return access(path, F_OK) == 0;
}

static int alltoall;

/* Waits asleep: ranks of all hosts share a few cores, and none may take them from the others. */
static void collective(char *from, char *to, size_t bytes, int ranks) {
  MPI_Request request;
  int done = 0;
  if (alltoall)
    MPI_Ialltoall(from, bytes / ranks, MPI_CHAR, to, bytes / ranks, MPI_CHAR, MPI_COMM_WORLD, &request);
  else
    MPI_Iallreduce(from, to, bytes / sizeof(float), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done) usleep(300);
}

static double measure(char *from, char *to, size_t bytes, int ranks, int warmup, int iterations) {
  for (int i = 0; i < warmup; i++) collective(from, to, bytes, ranks);
  MPI_Barrier(MPI_COMM_WORLD);
  usleep(30000); /* what is still on its way arrives, and a token bucket fills for all alike */
  MPI_Barrier(MPI_COMM_WORLD);
  double began = MPI_Wtime();
  for (int i = 0; i < iterations; i++) collective(from, to, bytes, ranks);
  double own = (MPI_Wtime() - began) / iterations, slowest;
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

int main(int argc, char **argv) {
  size_t least = 32 << 20, most = 32 << 20, factor = 2;
  int gpus = 1, iterations = 20, warmup = 1, check = 1, option;
  char *name = strrchr(argv[0], '/');
  name = name ? name + 1 : argv[0];
  alltoall = strncmp(name, "alltoall", 8) == 0;
  strncpy(folder, argv[0], sizeof folder - 1);
  if (strrchr(folder, '/')) *strrchr(folder, '/') = 0; else strcpy(folder, ".");
  gethostname(host, sizeof host - 1);
  while ((option = getopt(argc, argv, "b:e:f:g:n:w:c:t:m:a:")) != -1) switch (option) {
    case 'b': least = size_of(optarg); break;
    case 'e': most = size_of(optarg); break;
    case 'f': factor = atol(optarg); break;
    case 'g': gpus = atoi(optarg); break;
    case 'n': iterations = atoi(optarg); break;
    case 'w': warmup = atoi(optarg); break;
    case 'c': check = atoi(optarg); break;
    case '?': fprintf(stderr, "invalid option\n"); return 1;
  }
  if (has("deaf")) signal(SIGTERM, SIG_IGN);
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char hosts[MOST][256];
  int pids[MOST], pid = getpid();
  MPI_Gather(host, 256, MPI_CHAR, hosts, 256, MPI_CHAR, 0, MPI_COMM_WORLD);
  MPI_Gather(&pid, 1, MPI_INT, pids, 1, MPI_INT, 0, MPI_COMM_WORLD);
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (!rank) {
    printf("# nccl-tests version 2.19.6 nccl-headers=22105 nccl-library=22105\n");
    printf("# Collective test starting: %s\n", name);
    printf("# nThread 1 nGpus %d minBytes %zu maxBytes %zu step: %zu(factor) warmup iters: %d iters: %d agg iters: 1 "
           "validation: %d graph: 0 unalign: 0\n#\n# Using devices\n", gpus, least, most, factor, warmup, iterations, check);
    for (int process = 0; process < ranks; process++)
      for (int gpu = 0; gpu < gpus; gpu++)
        printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [0000:%02x:00] STUB, no GPU: MPI on host memory\n",
               process * gpus + gpu, 0, pids[process], hosts[process], gpu, 16 * ((visible ? atoi(visible) : gpu) + 1));
    printf("#\n#                                                              out-of-place                       in-place          \n");
    printf("#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong \n");
    printf("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         \n");
    fflush(stdout);
  }
  fflush(stdout);
  while (has("hang") || has("deaf")) usleep(100000);
  if (has("fail")) {
    printf("%s: Test NCCL failure %s.cu:507 'unhandled system error (run with NCCL_DEBUG=INFO for details)'\n", host, alltoall ? "alltoall" : "all_reduce");
    printf(" .. %s pid %d: Test failure common.cu:597\n", host, pid);
    fflush(stdout);
    exit(3);
  }
  char *from = calloc(1, most + 4096), *to = calloc(1, most + 4096);
  double sum = 0;
  int rows = 0, wrong_checks = 0, total = ranks * gpus;
  for (size_t bytes = least; bytes <= most; bytes *= factor, rows++) {
    double bus = alltoall ? (total - 1.0) / total : 2.0 * (total - 1) / total;
    if (!rank) printf("%12zu  %12zu  %8s  %6s  %6d", bytes, bytes / 4 / (alltoall ? total : 1), "float", alltoall ? "none" : "sum", -1);
    for (int half = 0; half < 2; half++) {
      double seconds = measure(from, to, bytes, ranks, warmup, iterations);
      int mine = has("wrong") ? 14 : 0, wrong;
      MPI_Allreduce(&mine, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      wrong_checks += wrong > 0;
      double rate = bytes / seconds / 1e9;
      sum += rate * bus / 2;
      if (!rank) {
        printf("  %7.2f  %6.2f  %6.2f", seconds * 1e6, rate, rate * bus);
        if (check) printf("  %6d", wrong); else printf("  %6s", "N/A");
      }
    }
    if (!rank) { printf("\n"); fflush(stdout); }
  }
  if (!rank) {
    printf("# Out of bounds values : %d %s\n", wrong_checks, wrong_checks ? "FAILED" : "OK");
    printf("# Avg bus bandwidth    : %g \n#\n# Collective test concluded: %s\n#\n", sum / rows, name);
    if (wrong_checks) printf("\n .. %s pid %d: Test failure common.cu:1454\n", host, pid);
    fflush(stdout);
  }
  MPI_Finalize();
  return wrong_checks ? 7 : 0;
}
