// One connection that claims and settles.

#ifndef WORKER_H
#define WORKER_H

#include <stdbool.h>
#include <stdint.h>

struct options {
  const char *url;
  /// Maximum number of deliveries of a claim, over all lanes.
  int batch;
  /// Run for this time, and poll when there is nothing; 0: until the outbox is empty.
  double seconds;
};

/// The results of a worker, from the first claim to the answer to the last settlement, in seconds of CLOCK_MONOTONIC.
struct work {
  int64_t claimed, settled, claims, settlements, bytes;
  double began, ended;
  /// CPU of the server process if it runs on this machine, else 0.
  double server_cpu;
};

/// Connects, registers a gateway, works, retires. Exits with a message if something fails.
struct work work(const struct options *options);

double now(void);

#endif
