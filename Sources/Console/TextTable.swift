// Rows of text in aligned columns.

/// A table for people.
package struct TextTable: Equatable, Sendable {
  package enum Alignment: Sendable { case left, right }

  /// How a cell is emphasized.
  package enum Emphasis: Int, Sendable {
    case none
    case warning = 33
    case alarm = 31
  }

  package struct Column: Equatable, Sendable {
    package var heading: String
    package var alignment = Alignment.left
    /// Whether long texts may be shortened. False for texts that people copy, such as ids.
    package var mayBeShortened = true
    /// Whether the column is left out if the table is too wide.
    package var mayBeLeftOut = false

    package init(
      heading: String, alignment: Alignment = .left, mayBeShortened: Bool = true, mayBeLeftOut: Bool = false
    ) {
      self.heading = heading
      self.alignment = alignment
      self.mayBeShortened = mayBeShortened
      self.mayBeLeftOut = mayBeLeftOut
    }
  }

  package struct Cell: Equatable, Sendable {
    package var text: String
    package var emphasis = Emphasis.none

    package init(_ text: String, _ emphasis: Emphasis = .none) {
      self.text = Terminal.printable(text)
      self.emphasis = emphasis
    }
  }

  package var columns: [Column]
  /// The cells of each row, one for each column.
  package var rows: [[Cell]]

  package init(columns: [Column], rows: [[Cell]]) {
    self.columns = columns
    self.rows = rows
  }

  private static let gap = 2
  /// The minimum width of a shortened column.
  private static let widthMin = 8

  /// The heading and the rows. A column without any text is left out.
  ///
  /// - Parameters:
  ///   - width: the maximum width of a line, if leaving out and shortening columns can achieve it; nil: no limit.
  ///   - isColored: whether emphasis is shown with colors.
  package func lines(width: Int? = nil, isColored: Bool = false) -> [String] {
    var used = columns.indices.filter { column in rows.contains { !$0[column].text.isEmpty } }
    let natural = columns.indices.map { column in
      rows.reduce(columns[column].heading.count) { max($0, $1[column].text.count) }
    }
    if let width {
      while Self.total(used.map { leastWidth(of: $0, natural[$0]) }) > width,
        let spare = used.lastIndex(where: { columns[$0].mayBeLeftOut })
      {
        used.remove(at: spare)
      }
    }
    let widths = shortened(used, used.map { natural[$0] }, toFit: width)
    let headings = columns.map { Cell($0.heading) }
    return ([headings] + rows).map { row in
      let cells = zip(used, widths).map { text(of: row[$0], width: $1, columns[$0].alignment, isColored) }
      return Self.trimmed(cells.joined(separator: String(repeating: " ", count: Self.gap)))
    }
  }

  private static func total(_ widths: [Int]) -> Int { widths.reduce(0, +) + gap * max(0, widths.count - 1) }

  private func leastWidth(of column: Int, _ natural: Int) -> Int {
    columns[column].mayBeShortened ? min(natural, Self.widthMin) : natural
  }

  /// The widths of the columns. While their sum is too large, the widest that may be shortened loses a character.
  private func shortened(_ used: [Int], _ natural: [Int], toFit width: Int?) -> [Int] {
    var widths = natural
    guard let width else { return widths }
    let candidates = used.indices.filter { columns[used[$0]].mayBeShortened }
    var excess = Self.total(widths) - width
    while excess > 0, let widest = candidates.max(by: { widths[$0] < widths[$1] }), widths[widest] > Self.widthMin {
      widths[widest] -= 1
      excess -= 1
    }
    return widths
  }

  private func text(of cell: Cell, width: Int, _ alignment: Alignment, _ isColored: Bool) -> String {
    let text = cell.text.count > width ? cell.text.prefix(width - 1) + "…" : cell.text
    let padding = String(repeating: " ", count: width - text.count)
    let colored = isColored && cell.emphasis != .none ? "\u{1B}[\(cell.emphasis.rawValue)m\(text)\u{1B}[0m" : text
    return alignment == .left ? colored + padding : padding + colored
  }

  private static func trimmed(_ line: String) -> String {
    var line = line
    while line.last == " " { line.removeLast() }
    return line
  }
}
