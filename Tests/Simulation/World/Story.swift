// The events of a seed, one line each, if they were requested.

/// Prints the events of a seed, or nothing.
final class Story {
  let isTold: Bool

  init(isTold: Bool) { self.isTold = isTold }

  func tell(_ time: VirtualTime, _ who: @autoclosure () -> String, _ what: @autoclosure () -> String) {
    guard isTold else { return }
    let microseconds = time / 1000
    let seconds = String(microseconds / 1_000_000)
    let rest = String(microseconds % 1_000_000 + 1_000_000).dropFirst()
    let name = who()
    let padding = String(repeating: " ", count: max(0, 10 - name.count))
    print("\(String(repeating: " ", count: max(0, 4 - seconds.count)))\(seconds).\(rest)  \(name)\(padding)  \(what())")
  }
}
