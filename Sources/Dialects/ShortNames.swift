// Names that a push shows, cut where the push would be too large with them.

internal import Queue
internal import Runtime

extension CallData {
  /// The members of a payload that apps only show. No other member is cut: an app may need all of it. `push.size_faults` has the
  /// same names and the same maximum.
  private static let shownNames: [StaticString] = [
    "fromName", "callerName", "apartmentNumber", "buildingName", "groupName",
  ]

  /// Maximum number of code points of a shortened name, with its ellipsis.
  private static let codePointsMax = 64

  /// The same call with shortened names.
  func withShortNames() -> CallData {
    let payload = JSONScanner(trusting: bytes, in: texts.payload)  // from a jsonb column
    var writer = JSONWriter(reservingCapacity: texts.payload.count)
    writer.beginObject()
    for member in payload.members(of: payload.root) {
      writer.rawKey(bytes, member.key)
      if Self.shownNames.contains(where: { payload.isKey(member, $0) }), let name = payload.text(member.value) {
        writer.string(Self.shortened(name))
      } else {
        writer.raw(bytes, member.value.range)
      }
    }
    writer.endObject()
    var shortened = texts
    shortened.payload = bytes.count..<bytes.count + writer.bytes.count
    return CallData(texts: shortened, bytes: bytes + writer.bytes, isOver: isOver, decliners: decliners)
  }

  /// Whole characters and an ellipsis. Empty, as if there were no name, if not even the first character fits, or if only blanks do.
  private static func shortened(_ name: String) -> String {
    guard name.unicodeScalars.count > codePointsMax else { return name }
    var text = ""
    var room = codePointsMax - 1
    for character in name {
      room -= character.unicodeScalars.count
      if room < 0 { break }
      text.append(character)
    }
    while text.last?.isWhitespace == true { text.removeLast() }
    return text.isEmpty ? "" : text + "…"
  }
}
