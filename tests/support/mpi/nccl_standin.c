/* A stand-in for nccl-tests 2.19 on machines without a GPU.
 *
 * The times are those of real MPI collectives on host memory; the format of the output, the options and the exit
 * statuses are those of nccl-tests, also of -I, -J and NCCL_TESTS_SPLIT="DIV n". Each device is called STUB, so that nobody takes the output for a recording.
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

static MPI_Comm comm; /* of all processes, or of those with the same color (NCCL_TESTS_SPLIT) */

/* Waits asleep: ranks of all hosts share a few cores, and none may take them from the others. */
static void collective(char *from, char *to, size_t bytes, int ranks) {
  MPI_Request request;
  int done = 0;
  if (alltoall)
    MPI_Ialltoall(from, bytes / ranks, MPI_CHAR, to, bytes / ranks, MPI_CHAR, comm, &request);
  else
    MPI_Iallreduce(from, to, bytes / sizeof(float), MPI_FLOAT, MPI_SUM, comm, &request);
  while (MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done) usleep(300);
}

static double *own_times; /* of each iteration, seconds */

static double measure(char *from, char *to, size_t bytes, int ranks, int warmup, int iterations) {
  for (int i = 0; i < warmup; i++) collective(from, to, bytes, ranks);
  MPI_Barrier(MPI_COMM_WORLD);
  usleep(30000); /* what is still on its way arrives, and a token bucket fills for all alike */
  MPI_Barrier(MPI_COMM_WORLD);
  double began = MPI_Wtime(), last = began;
  for (int i = 0; i < iterations; i++) {
    collective(from, to, bytes, ranks);
    double now = MPI_Wtime();
    own_times[i] = now - last;
    last = now;
  }
  double own = (MPI_Wtime() - began) / iterations, slowest;
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

static int by_value(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

/* Prints the four columns of -I, and their object in the JSON: all[process * iterations + iteration], seconds. */
static void per_iteration(FILE *json, const char *key, const double *all, int processes, int iterations, int skipped) {
  double times[iterations], sorted[iterations], sum = 0, squares = 0;
  for (int i = 0; i < iterations; i++) {
    times[i] = 0;
    for (int process = 0; process < processes; process++)
      if (all[process * iterations + i] > times[i]) times[i] = all[process * iterations + i];
  }
  int counted = iterations - skipped;
  for (int i = 0; i < counted; i++) sum += sorted[i] = times[i + skipped];
  for (int i = 0; i < counted; i++) squares += (sorted[i] - sum / counted) * (sorted[i] - sum / counted);
  qsort(sorted, counted, sizeof *sorted, by_value);
  double mean = sum / counted, deviation = counted ? squares / counted : 0, root = mean;
  for (int i = 0; i < 60; i++) root = root > 0 ? (root + deviation / root) / 2 : 0; /* a square root, without libm */
  int p95 = (counted * 95 + 99) / 100 - 1, p99 = (counted * 99 + 99) / 100 - 1;
  printf("  %7.2f  %7.2f  %7.2f  %7.2f", sorted[0] * 1e6, sorted[counted - 1] * 1e6, sorted[p99] * 1e6, root / mean * 100);
  if (!json) return;
  fprintf(json, ",\n   \"%s\": {\"skipped_iterations\": %d, \"min_us\": %f, \"max_us\": %f, \"avg_us\": %f, \"p50_us\": %f, "
          "\"p95_us\": %f, \"p99_us\": %f, \"stdev_us\": %f, \"cv_pct\": %f,\n    \"times_us\": [", key, skipped, sorted[0] * 1e6,
          sorted[counted - 1] * 1e6, mean * 1e6, sorted[counted / 2] * 1e6, sorted[p95] * 1e6, sorted[p99] * 1e6, root * 1e6,
          root / mean * 100);
  for (int i = 0; i < iterations; i++) fprintf(json, "%s%f", i ? ", " : "", times[i] * 1e6);
  fprintf(json, "]");
  for (int process = 0; processes > 1 && process < processes; process++) {
    fprintf(json, process ? ",\n     [" : ",\n    \"per_process_max_times_us\": [\n     [");
    for (int i = 0; i < iterations; i++) fprintf(json, "%s%f", i ? ", " : "", all[process * iterations + i] * 1e6);
    fprintf(json, "]");
  }
  fprintf(json, processes > 1 ? "]}" : "}");
}

int main(int argc, char **argv) {
  size_t least = 32 << 20, most = 32 << 20, factor = 2;
  int gpus = 1, iterations = 20, warmup = 1, check = 1, single = 0, skipped = 0, option;
  const char *file = NULL;
  char *name = strrchr(argv[0], '/');
  name = name ? name + 1 : argv[0];
  alltoall = strncmp(name, "alltoall", 8) == 0;
  strncpy(folder, argv[0], sizeof folder - 1);
  if (strrchr(folder, '/')) *strrchr(folder, '/') = 0; else strcpy(folder, ".");
  gethostname(host, sizeof host - 1);
  while ((option = getopt(argc, argv, "b:e:f:g:n:w:c:t:m:a:I:K:J:")) != -1) switch (option) {
    case 'b': least = size_of(optarg); break;
    case 'e': most = size_of(optarg); break;
    case 'f': factor = atol(optarg); break;
    case 'g': gpus = atoi(optarg); break;
    case 'n': iterations = atoi(optarg); break;
    case 'w': warmup = atoi(optarg); break;
    case 'c': check = atoi(optarg); break;
    case 'I': single = atoi(optarg); break;
    case 'K': skipped = atoi(optarg); break;
    case 'J': file = optarg; break;
    case '?': fprintf(stderr, "invalid option\n"); return 1;
  }
  if (has("deaf")) signal(SIGTERM, SIG_IGN);
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char hosts[MOST][256];
  int pids[MOST], colors[MOST], pid = getpid(), color = 0, members;
  const char *split = getenv("NCCL_TESTS_SPLIT");
  if (split && sscanf(split, "DIV %d", &color) == 1 && color > 0) color = rank / color;
  MPI_Comm_split(MPI_COMM_WORLD, color, rank, &comm);
  MPI_Comm_size(comm, &members);
  MPI_Gather(&color, 1, MPI_INT, colors, 1, MPI_INT, 0, MPI_COMM_WORLD);
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
               process * gpus + gpu, colors[process], pids[process], hosts[process], gpu, 16 * ((visible ? atoi(visible) : gpu) + 1));
    const char *names = single ? "    i_min    i_max    i_p99    i_cv%" : "", *units = single ? "     (us)     (us)     (us)      (%)" : "";
    printf("#\n#                                                              out-of-place%s                       in-place          \n", single ? " (+ per-iteration)                  " : "");
    printf("#       size         count      type   redop    root     time   algbw   busbw  #wrong%s     time   algbw   busbw  #wrong%s \n", names, names);
    printf("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)        %s     (us)  (GB/s)  (GB/s)        %s \n", units, units);
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
  FILE *json = !rank && file ? fopen(file, "w") : NULL;
  if (json) {
    fprintf(json, "{\n \"version\": 4,\n \"args\": [\"%s\"],\n \"env\": [\"STUB=no GPU\"],\n \"nccl_version\": 22105,\n \"config\": {\n  \"nthreads\": 1,\n"
            "  \"ngpus\": %d,\n  \"warmup_iters\": %d,\n  \"iterations\": %d,\n  \"validation\": %d,\n  \"per_iter_timing\": \"%s\",\n"
            "  \"per_iter_skip\": %d,\n  \"devices\": [", name, gpus, warmup, iterations, check, single ? "true" : "false", skipped);
    for (int process = 0; process < ranks; process++)
      fprintf(json, "%s\n   {\"rank\": %d, \"group\": %d, \"pid\": %d, \"hostname\": \"%s\", \"device\": 0, \"device_hex\": \"0000:%02x:00\", "
              "\"device_info\": \"STUB, no GPU: MPI on host memory\"}", process ? "," : "", process * gpus, colors[process], pids[process],
              hosts[process], 16 * ((visible ? atoi(visible) : 0) + 1));
    fprintf(json, "\n  ]\n },\n \"results\": [");
  }
  own_times = calloc(iterations, sizeof *own_times);
  double *all_times = calloc((size_t)iterations * ranks, sizeof *all_times);
  char *from = calloc(1, most + 4096), *to = calloc(1, most + 4096);
  double sum = 0;
  int rows = 0, wrong_checks = 0, total = members * gpus;
  for (size_t bytes = least; bytes <= most; bytes *= factor, rows++) {
    double bus = alltoall ? (total - 1.0) / total : 2.0 * (total - 1) / total;
    if (json) fprintf(json, "%s\n  {\"size\": %zu, \"count\": %zu, \"type\": \"float\", \"redop\": \"%s\", \"root\": \"    -1\"", rows ? "," : "", bytes, bytes / 4 / (alltoall ? total : 1), alltoall ? "none" : "sum");
    if (!rank) printf("%12zu  %12zu  %8s  %6s  %6d", bytes, bytes / 4 / (alltoall ? total : 1), "float", alltoall ? "none" : "sum", -1);
    for (int half = 0; half < 2; half++) {
      double seconds = measure(from, to, bytes, members, warmup, iterations);
      int mine = has("wrong") ? 14 : 0, wrong;
      MPI_Allreduce(&mine, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      wrong_checks += wrong > 0;
      double rate = bytes / seconds / 1e9;
      sum += rate * bus / 2;
      if (!rank) {
        printf("  %7.2f  %6.2f  %6.2f", seconds * 1e6, rate, rate * bus);
        if (check) printf("  %6d", wrong); else printf("  %6s", "N/A");
        if (json) fprintf(json, ",\n   \"%s\": {\"time\": %f, \"alg_bw\": %f, \"bus_bw\": %f, \"nwrong\": %d}", half ? "in_place" : "out_of_place",
                          seconds * 1e6, rate, rate * bus, wrong);
      }
      MPI_Gather(own_times, iterations, MPI_DOUBLE, all_times, iterations, MPI_DOUBLE, 0, MPI_COMM_WORLD);
      if (!rank && single) per_iteration(json, half ? "in_place_per_iter" : "out_of_place_per_iter", all_times, ranks, iterations, skipped);
    }
    if (json) fprintf(json, ",\n   \"actual_iterations\": %d}", iterations);
    if (!rank) { printf("\n"); fflush(stdout); }
  }
  if (!rank) {
    printf("# Out of bounds values : %d %s\n", wrong_checks, wrong_checks ? "FAILED" : "OK");
    printf("# Avg bus bandwidth    : %g \n#\n# Collective test concluded: %s\n#\n", sum / rows, name);
    if (wrong_checks) printf("\n .. %s pid %d: Test failure common.cu:1454\n", host, pid);
    fflush(stdout);
  }
  if (json) {
    fprintf(json, "\n ],\n \"out_of_bounds\": {\"count\": %d, \"okay\": \"%s\"},\n \"average_bus_bandwidth\": {\"bandwidth\": %f, \"okay\": \"unchecked\"},\n"
            " \"errors\": [\"\"]\n}\n", wrong_checks, wrong_checks ? "false" : "true", sum / rows);
    fclose(json);
  }
  MPI_Finalize();
  return wrong_checks ? 7 : 0;
}
