// "Did you mean": suggests the nearest valid name.

/// The addition to an error message when a word is close to a known one.
public enum Suggestion {
  /// `; did you mean X?`, or nothing if no name is close.
  /// - Parameters:
  ///   - word: the word that was written.
  ///   - candidates: all valid words.
  public static func text(for word: String, among candidates: [String]) -> String {
    nearest(to: word, among: candidates).map { "; did you mean \($0)?" } ?? ""
  }

  /// The candidate with the fewest edits, if they are few enough for a typing error, or that begins with a word of at least three
  /// letters. Of several, one that begins with the word.
  public static func nearest(to word: String, among candidates: [String]) -> String? {
    let limit = max(1, word.count / 3)
    return
      candidates
      .map { name in
        let isBeginning = word.count >= 3 && name.lowercased().hasPrefix(word.lowercased())
        return (name: name, distance: isBeginning ? 0 : distance(word.lowercased(), name.lowercased()))
      }
      .filter { $0.distance <= limit }
      .min { $0.distance < $1.distance }?.name
  }

  /// Levenshtein's distance: insertions, deletions and replacements.
  private static func distance(_ left: String, _ right: String) -> Int {
    let (left, right) = (Array(left.utf8), Array(right.utf8))
    var row = Array(0...right.count)
    for (i, a) in left.enumerated() {
      var diagonal = row[0]
      row[0] = i + 1
      for (j, b) in right.enumerated() {
        (diagonal, row[j + 1]) = (row[j + 1], min(row[j + 1] + 1, row[j] + 1, diagonal + (a == b ? 0 : 1)))
      }
    }
    return row[right.count]
  }
}
