// A run divided into slices of equal length: how much was enqueued, received and settled in each, and how long requests
// took.

/// Throughput and latency over time.
struct LoadTimeline: Sendable {
  struct Slice: Sendable {
    var enqueued = 0
    var received = 0
    var settled = 0
    /// Latencies from scheduled to request, for the requests received in this slice.
    var latency: LatencyHistogram.Summary?
  }

  /// Start of the first slice in microseconds since 1970.
  let start: Int64
  /// Microseconds.
  let width: Int64
  private(set) var slices: [Slice] = []

  /// Maximum number of slices.
  private static let countMax = 120
  /// The possible lengths, from tenths of a second to hours.
  private static let widths: [Int64] = [
    100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000, 300_000_000,
    1_800_000_000, 3_600_000_000,
  ]

  init(_ ledger: LoadLedger) {
    let deliveries = ledger.deliveries.filter(\.isEnqueued)
    let start = deliveries.reduce(Int64.max) { min($0, $1.scheduledAt) }
    let end = deliveries.reduce(start) { max($0, $1.committedAt, $1.lastReceivedAt, $1.finishedAt) }
    let width = Self.widths.first { (end - start) / $0 < Self.countMax } ?? Self.widths[Self.widths.count - 1]
    (self.start, self.width) = (start, width)
    guard !deliveries.isEmpty else { return }

    slices = Array(repeating: Slice(), count: Int((end - start) / width) + 1)
    func index(_ time: Int64) -> Int { min(max(0, Int((time - start) / width)), slices.count - 1) }
    var requests: [(slice: Int, latency: Int64)] = []
    for delivery in deliveries {
      slices[index(delivery.committedAt)].enqueued += 1
      if delivery.finishedAt > 0 { slices[index(delivery.finishedAt)].settled += 1 }
      guard let latency = LoadStage.request.latency(of: delivery, hasLog: ledger.hasLog) else { continue }
      let slice = index(delivery.scheduledAt + latency)
      slices[slice].received += 1
      requests.append((slice, latency))
    }
    requests.sort { $0.slice < $1.slice }
    for slice in requests.chunked() {
      var histogram = LatencyHistogram()
      for request in slice { histogram.record(request.latency) }
      if let first = slice.first { slices[first.slice].latency = histogram.summary }
    }
  }

  /// Seconds from the start to the middle of a slice.
  func seconds(_ index: Int) -> Double { (Double(index) + 0.5) * Double(width) / 1e6 }

  /// The count of a slice as a rate per second.
  func rate(_ count: Int) -> Double { Double(count) * 1e6 / Double(width) }
}

extension [(slice: Int, latency: Int64)] {
  /// Groups of adjacent elements of the same slice.
  fileprivate func chunked() -> [ArraySlice<Element>] {
    var chunks: [ArraySlice<Element>] = []
    var start = startIndex
    while start < endIndex {
      let end = self[start...].firstIndex { $0.slice != self[start].slice } ?? endIndex
      chunks.append(self[start..<end])
      start = end
    }
    return chunks
  }
}
