// How the commands of operations write: tables, durations, and frames of a terminal.

import Testing

@testable import Console
@testable import Operations

@Suite struct OperationsCommandTextTests {
  private static let table = TextTable(
    columns: [
      .init(heading: "APP"), .init(heading: "CALL", mayBeShortened: false), .init(heading: "EMPTY"),
      .init(heading: "COUNT", alignment: .right, mayBeShortened: false),
      .init(heading: "NOTE", mayBeLeftOut: true),
    ],
    rows: [
      [.init("porteiro"), .init("7d4e3a52-0c1f"), .init(""), .init("7"), .init("short")],
      [.init("a-very-long-name"), .init("x"), .init(""), .init("12345678", .alarm), .init("a rather long note")],
    ])

  @Test func `columns line up, numbers to the right, and empty columns are left out`() {
    #expect(
      Self.table.lines() == [
        "APP               CALL              COUNT  NOTE",
        "porteiro          7d4e3a52-0c1f         7  short",
        "a-very-long-name  x              12345678  a rather long note",
      ])
  }

  @Test func `a narrow table shortens the widest texts first, and never an id or a number`() {
    #expect(
      Self.table.lines(width: 55) == [
        "APP             CALL              COUNT  NOTE",
        "porteiro        7d4e3a52-0c1f         7  short",
        "a-very-long-n…  x              12345678  a rather long…",
      ])
  }

  @Test func `a narrower one leaves out what may be, and keeps the rest readable`() {
    let lines = Self.table.lines(width: 36)
    #expect(
      lines == [
        "APP          CALL              COUNT", "porteiro     7d4e3a52-0c1f         7",
        "a-very-lon…  x              12345678",
      ])
    #expect(Self.table.lines(width: 3)[0] == "APP       CALL              COUNT")
  }

  @Test func `color surrounds the text and does not count as width`() {
    let line = Self.table.lines(isColored: true)[2]
    #expect(line == "a-very-long-name  x              \u{1B}[31m12345678\u{1B}[0m  a rather long note")
  }

  @Test func `what others wrote cannot move the cursor or begin a line`() {
    #expect(TextTable.Cell("a\u{1B}[2Jb\nc\u{9B}d\u{202E}e").text == "a\u{FFFD}[2Jb\u{FFFD}c\u{FFFD}d\u{FFFD}e")
    #expect(Terminal.printable("ação 📞 …") == "ação 📞 …")
  }

  private static let durations: [(seconds: Double, text: String)] = [
    (0, "0 ms"), (0.0004, "0 ms"), (-0.0004, "0 ms"), (0.35, "350 ms"), (0.9994, "999 ms"), (0.9996, "1.0 s"),
    (5.24, "5.2 s"),
    (59.94, "59.9 s"), (59.96, "1 m"), (75, "1 m 15 s"), (3_599.6, "1 h"), (7_380, "2 h 3 m"), (90_000, "1 d 1 h"),
    (864_000, "10 d"), (-25.5, "-25.5 s"), (-0.02, "-20 ms"), (.infinity, ""), (.nan, ""),
  ]

  @Test(arguments: durations) func `durations are said as people say them`(seconds: Double, text: String) {
    #expect(HumanDuration.text(seconds: seconds) == text)
  }

  @Test func `a time is digits and a unit`() {
    let texts = ["90s", "30m", "1h", "2d", "999999d", "0s"]
    #expect(texts.map(HumanDuration.seconds) == [90, 1_800, 3_600, 172_800, 86_399_913_600, 0])
    for text in ["", "h", "1", "1w", "1 h", "-1h", "1.5h", "+1h", "1000000s", "١h"] {
      #expect(HumanDuration.seconds(text) == nil, "\(text)")
    }
  }

  @Test func `a frame clears behind its lines and counts those that do not fit`() {
    #expect(StatusWatch.frame(["a", "b"], rows: 24) == "\u{1B}[Ha\u{1B}[K\nb\u{1B}[K\n\u{1B}[J")
    let cut = StatusWatch.frame((1...9).map(String.init), rows: 5)
    #expect(cut == "\u{1B}[H1\u{1B}[K\n2\u{1B}[K\n3\u{1B}[K\n(6 more lines)\u{1B}[K\n\u{1B}[J")
    #expect(StatusWatch.frame(["a", "b"], rows: 1) == "\u{1B}[H(2 more lines)\u{1B}[K\n\u{1B}[J")
  }
}
