// Statistics of this process from /proc/self (proc(5)); none on systems without /proc.

import Foundation

#if canImport(Glibc)
import Glibc
#endif

/// The values of the standard `process_` metrics.
struct ProcessStatistics: Sendable {
  var cpuSeconds: Double
  var residentBytes: Int
  var virtualBytes: Int
  var openDescriptors: Int
  var maxDescriptors: Int
  /// Seconds since 1970.
  var startSeconds: Double

  /// Reads the current values. Returns nil if the system has no /proc.
  init?() {
    #if os(Linux)
    let ticks = Double(sysconf(Int32(_SC_CLK_TCK)))
    let page = Int(sysconf(Int32(_SC_PAGESIZE)))
    guard let stat = try? String(contentsOfFile: "/proc/self/stat", encoding: .utf8),
      // The second field is the program's name in parentheses. It may contain spaces and parentheses.
      let end = stat.lastIndex(of: ")"),
      let system = try? String(contentsOfFile: "/proc/stat", encoding: .utf8),
      let bootLine = system.split(separator: "\n").first(where: { $0.hasPrefix("btime ") }),
      let boot = Double(bootLine.dropFirst("btime ".count)),
      let descriptors = try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")
    else { return nil }
    let fields = stat[stat.index(after: end)...].split(separator: " ").map { Double($0) ?? 0 }
    guard fields.count > 21 else { return nil }
    // Field n of proc(5) is fields[n - 3].
    cpuSeconds = (fields[11] + fields[12]) / ticks
    startSeconds = boot + fields[19] / ticks
    virtualBytes = Int(fields[20])
    residentBytes = Int(fields[21]) * page
    openDescriptors = descriptors.count
    var limit = rlimit()
    guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return nil }
    maxDescriptors = Int(clamping: limit.rlim_cur)
    #else
    return nil
    #endif
  }
}
