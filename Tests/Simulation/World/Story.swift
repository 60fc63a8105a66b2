// What happened, one line an event, when somebody wants to read it.

/// Prints the story of a seed, or nothing.
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
