// One connection that claims and settles.

#ifndef WORKER_H
#define WORKER_H

#include <stdbool.h>
#include <stdint.h>

struct options {
  const char *url;
  /// Deliveries a claim asks for, over all lanes.
  int batch;
  /// Keep at it for so long, polling when there is nothing; 0: until the outbox is empty.
  double seconds;
};

/// What a worker did: from the first claim to the answer to the last settlement, in seconds of CLOCK_MONOTONIC.
struct work {
  int64_t claimed, settled, claims, settlements, bytes;
  double began, ended;
  /// CPU that our server process took, as far as it runs on this machine; otherwise 0.
  double server_cpu;
};

/// Connects, registers a gateway, works, retires. Ends the process with a message when something fails.
struct work work(const struct options *options);

double now(void);

#endif
