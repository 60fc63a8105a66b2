// A line chart as inline SVG. The colors come from the page: each series names a CSS class.

internal import Console
internal import Foundation

/// A chart.
struct LineChart: Sendable {
  struct Series: Sendable {
    var name: String
    var points: [(x: Double, y: Double)]
  }

  /// A position on the horizontal axis with a text.
  struct Tick: Sendable {
    var x: Double
    var text: String
  }

  enum Scale: Sendable { case linear, logarithmic }

  var title: String
  var series: [Series]
  var scale = Scale.linear
  /// The range and labels of the axis; nil for round numbers of seconds.
  var ticks: [Tick]?
  /// Formats a value on the vertical axis.
  var label: @Sendable (Double) -> String

  private static let (width, height) = (860.0, 300.0)
  private static let (left, right, top, bottom) = (76.0, 16.0, 12.0, 30.0)

  var svg: String {
    let points = series.flatMap(\.points)
    guard !points.isEmpty else { return "<p>\(Self.escaped(title)): nothing to show.</p>" }
    let horizontal = ticks ?? Self.secondTicks(to: points.reduce(0) { max($0, $1.x) })
    let xMin = min(points.reduce(.infinity) { min($0, $1.x) }, horizontal.first?.x ?? .infinity)
    let xMax = max(points.reduce(-.infinity) { max($0, $1.x) }, horizontal.last?.x ?? -.infinity)
    let levels = self.levels(points.map(\.y))
    let (low, high) = (position(levels[0]), position(levels[levels.count - 1]))

    func x(_ value: Double) -> Double {
      Self.left + (value - xMin) / max(xMax - xMin, 1e-9) * (Self.width - Self.left - Self.right)
    }
    func y(_ value: Double) -> Double {
      let share = (position(max(value, levels[0])) - low) / max(high - low, 1e-9)
      return Self.height - Self.bottom - share * (Self.height - Self.top - Self.bottom)
    }

    var parts = [
      "<svg viewBox=\"0 0 \(Int(Self.width)) \(Int(Self.height))\" role=\"img\" aria-label=\"\(Self.escaped(title))\">"
    ]
    for level in levels {
      parts.append(Self.line("grid", Self.left, y(level), Self.width - Self.right, y(level)))
      parts.append(Self.text(Self.left - 8, y(level) + 4, "end", label(level)))
    }
    for tick in horizontal {
      parts.append(Self.line("tick", x(tick.x), Self.height - Self.bottom, x(tick.x), Self.height - Self.bottom + 5))
      parts.append(Self.text(x(tick.x), Self.height - 8, "middle", tick.text))
    }
    for (index, line) in series.enumerated() where !line.points.isEmpty {
      let path = line.points.map { "\(Self.number(x($0.x))),\(Self.number(y($0.y)))" }.joined(separator: " ")
      // A single point would be a line of length zero.
      if line.points.count == 1 {
        let point = line.points[0]
        parts.append(
          "<circle class=\"s\(index)\" cx=\"\(Self.number(x(point.x)))\" cy=\"\(Self.number(y(point.y)))\" r=\"3\"/>")
      } else {
        parts.append("<polyline class=\"s\(index)\" points=\"\(path)\"/>")
      }
    }
    parts.append("</svg>")
    return parts.joined(separator: "\n")
  }

  /// The figure with its title and legend.
  var figure: String {
    let legend = series.enumerated().map { "<li class=\"s\($0)\">\(Self.escaped($1.name))</li>" }.joined()
    return "<figure><figcaption>\(Self.escaped(title))</figcaption><ul class=\"legend\">\(legend)</ul>\(svg)</figure>"
  }

  /// Escapes text for HTML elements and quoted attributes.
  static func escaped(_ text: String) -> String {
    var escaped = ""
    for character in Terminal.printable(text) {
      switch character {
      case "&": escaped += "&amp;"
      case "<": escaped += "&lt;"
      case ">": escaped += "&gt;"
      case "\"": escaped += "&quot;"
      case "'": escaped += "&#39;"
      default: escaped.append(character)
      }
    }
    return escaped
  }

  // MARK: - Axes

  private func position(_ value: Double) -> Double { scale == .linear ? value : log10(max(value, 1e-9)) }

  /// The horizontal lines: round numbers around all values, or powers of ten on a logarithmic scale.
  private func levels(_ values: [Double]) -> [Double] {
    let high = values.reduce(0, max)
    switch scale {
    case .linear:
      let step = Self.roundStep(max(high, 1e-9) / 5)
      return Array(stride(from: 0, through: (high / step).rounded(.up) * step + step / 2, by: step))
    case .logarithmic:
      let low = values.filter { $0 > 0 }.reduce(high, min)
      guard low > 0 else { return [1, 10] }
      let first = Int(log10(low).rounded(.down))
      let last = max(Int(log10(high).rounded(.up)), first + 1)
      return (first...last).map { pow(10, Double($0)) }
    }
  }

  private static func secondTicks(to end: Double) -> [Tick] {
    let step = roundStep(max(end, 0.1) / 8)
    return stride(from: 0, through: end + step / 2, by: step).map { Tick(x: $0, text: "\(number($0)) s") }
  }

  /// The smallest of 1, 2, 5, 10, 20, 50 … (and their tenths) that is not below the value.
  private static func roundStep(_ value: Double) -> Double {
    let power = pow(10, log10(value).rounded(.down))
    return ([1, 2, 5, 10].first { $0 * power >= value * (1 - 1e-9) } ?? 10) * power
  }

  // MARK: - Elements

  private static func line(_ name: String, _ x1: Double, _ y1: Double, _ x2: Double, _ y2: Double) -> String {
    "<line class=\"\(name)\" x1=\"\(number(x1))\" y1=\"\(number(y1))\" x2=\"\(number(x2))\" y2=\"\(number(y2))\"/>"
  }

  private static func text(_ x: Double, _ y: Double, _ anchor: String, _ text: String) -> String {
    "<text x=\"\(number(x))\" y=\"\(number(y))\" text-anchor=\"\(anchor)\">\(escaped(text))</text>"
  }

  /// With at most one decimal.
  private static func number(_ value: Double) -> String {
    let rounded = (value * 10).rounded() / 10
    return rounded == rounded.rounded() ? "\(Int(rounded))" : "\(rounded)"
  }
}
