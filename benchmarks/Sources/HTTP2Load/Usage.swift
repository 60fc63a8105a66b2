// Measures time and CPU.

import Runtime

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// The time, and the user and system time of all threads of this process.
struct Usage {
  var wall: Nanoseconds
  var cpu: Nanoseconds

  /// Now.
  init() {
    var usage = rusage()
    #if canImport(Glibc)
    unsafe getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    #else
    unsafe getrusage(RUSAGE_SELF, &usage)
    #endif
    wall = Nanoseconds(SystemClock().now().nanoseconds)
    cpu =
      .seconds(Int64(usage.ru_utime.tv_sec) + Int64(usage.ru_stime.tv_sec))
      + .microseconds(Int64(usage.ru_utime.tv_usec) + Int64(usage.ru_stime.tv_usec))
  }

  /// The difference between the two.
  static func - (later: Usage, earlier: Usage) -> Usage {
    var used = later
    used.wall = later.wall - earlier.wall
    used.cpu = later.cpu - earlier.cpu
    return used
  }
}
