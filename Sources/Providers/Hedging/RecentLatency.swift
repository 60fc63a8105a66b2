// The latencies of recent answers as a histogram with logarithmic classes. Recording one is an addition. No clock, no I/O.
//
// There are eight classes in an octave, so a result is at most an eighth too long. Two windows of counts are kept, and the older
// one is dropped as a whole. A busy lane remembers about its last minute, a lane with few calls its last hundred answers.

internal import Runtime

/// The latencies of a lane's recent answers.
struct RecentLatency {
  /// A window ends when it has at least the age and the number of answers of one of these pairs.
  private static let windows: [(age: Nanoseconds, answers: Int)] = [(.seconds(30), 1_000), (.seconds(3_600), 50)]
  /// Latencies are measured in units of 2²⁰ ns (1.05 ms), up to 2¹⁴ units (17 s).
  private static let unitBits = 20
  private static let unitsMax = 1 << 14
  private static let classCount = 8 * 12 + 8

  private struct Window {
    var counts = [Int](repeating: 0, count: RecentLatency.classCount)
    var total = 0
    var startedAt = Instant(nanoseconds: .min)
  }

  private var current = Window()
  private var former = Window()

  /// Number of remembered answers.
  var count: Int { current.total + former.total }

  /// Records the latency of an answer.
  mutating func note(_ latency: Nanoseconds, _ now: Instant) {
    if current.total == 0 { current.startedAt = now }
    if Self.windows.contains(where: { current.total >= $0.answers && current.startedAt + $0.age <= now }) {
      turnOver(now)
    }
    current.counts[Self.classIndex(latency)] += 1
    current.total += 1
  }

  /// The time within which all but one in `part` answers came; nil while there are no answers. O(1): a hundred additions.
  func allBut(oneIn part: Int) -> Nanoseconds? {
    guard count > 0 else { return nil }
    var longer = count / part
    for index in (0..<Self.classCount).reversed() {
      longer -= current.counts[index] + former.counts[index]
      if longer < 0 { return Self.end(of: index) }
    }
    return nil
  }

  private mutating func turnOver(_ now: Instant) {
    swap(&current, &former)
    for index in current.counts.indices { current.counts[index] = 0 }
    current.total = 0
    current.startedAt = now
  }

  /// Each value below eight units has its own class. Above, the three bits after the highest bit select a class of the octave.
  private static func classIndex(_ latency: Nanoseconds) -> Int {
    let units = min(max(Int(latency.count >> Int64(unitBits)), 0), unitsMax - 1)
    guard units >= 8 else { return units }
    let shift = Int.bitWidth - 1 - units.leadingZeroBitCount - 3
    return shift * 8 + units >> shift
  }

  private static func end(of index: Int) -> Nanoseconds {
    let shift = max(0, index / 8 - 1)
    return Nanoseconds(Int64((index - shift * 8 + 1) << shift) << Int64(unitBits))
  }
}
