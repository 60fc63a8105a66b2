// Durations in a form for people.

internal import Foundation

package enum HumanDuration {
  private static let units: [(name: String, seconds: Int)] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)]

  /// `350 ms`, `5.2 s`, `1 m 15 s`, `2 h 3 m`, `4 d 1 h`; a negative duration begins with a minus sign.
  package static func text(seconds: Double) -> String {
    guard seconds.isFinite else { return "" }
    let length = abs(seconds)
    let text =
      if length < 0.9995 {
        "\(Int((length * 1000).rounded())) ms"
      } else if length < 59.95 {
        String(format: "%.1f s", length)
      } else {
        twoUnits(Int(min(length.rounded(), 1e15)))
      }
    return seconds < 0 && text != "0 ms" ? "-" + text : text
  }

  /// The seconds of a text like `90s`, `30m`, `1h` or `2d`: at most six digits and a unit. Nil if it is none.
  package static func seconds(_ text: String) -> Int64? {
    guard let unit = units.first(where: { $0.name == text.suffix(1) }), 2...7 ~= text.utf8.count,
      text.utf8.dropLast().allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 })
    else { return nil }
    return Int64(text.dropLast()).map { $0 * Int64(unit.seconds) }
  }

  /// The largest unit that fits, and the rest in the next smaller unit.
  private static func twoUnits(_ seconds: Int) -> String {
    let first = units.firstIndex { $0.seconds <= seconds } ?? units.count - 1
    let whole = seconds / units[first].seconds
    guard first + 1 < units.count else { return "\(whole) \(units[first].name)" }
    let next = units[first + 1]
    let rest = seconds % units[first].seconds / next.seconds
    return "\(whole) \(units[first].name)" + (rest == 0 ? "" : " \(rest) \(next.name)")
  }
}
