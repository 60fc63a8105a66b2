// One ${…} of a template: names to try in order, and what to do when none of them is there.

internal import Runtime

/// `${fromName|from|'Porteiro'}`: the first name that has a text, else the literal.
/// `${apartmentNumber?}`: the member it is the value of is left out when there is none.
/// `${metadata:json}`: the value as it stands in the payload, not as a string.
/// `${callId?:uuid}`: only a text that is a UUID counts.
/// `${isVideo?'Video':'Voice'}`: one literal for a video call, another for any other; without the other the member is left
/// out.
/// `${isUuid?'…':'…'}`: the same, by whether the call's id is a UUID.
struct Placeholder: Equatable, Sendable {
  var names: [TemplateName] = []
  /// The literal at the end of the alternatives, as the contents of a JSON string.
  var fallback: [UInt8]?
  var isOptional = false
  var isJSON = false
  var isUUID = false
  /// The two literals of `isVideo?'…':'…'`, as the contents of JSON strings.
  var choice: Choice?

  struct Choice: Equatable, Sendable {
    var question: Question
    var yes: [UInt8]
    var no: [UInt8]?
  }

  /// What a choice is made by.
  enum Question: String, CaseIterable, Sendable {
    case isVideo
    case isUUID = "isUuid"
  }

  /// Reads what stands between `${` and `}`.
  init(_ text: String) throws(TemplateError.Reason) {
    if let choice = Self.choice(in: text) {
      self.choice = choice
      isOptional = choice.no == nil
      return
    }
    var rest = text[...]
    if rest.hasSuffix("?:uuid") {
      isUUID = true
      rest = rest.dropLast(5)
    }
    if rest.hasSuffix(":json") {
      isJSON = true
      rest = rest.dropLast(5)
    }
    if rest.hasSuffix("?") {
      isOptional = true
      rest = rest.dropLast()
    }
    for alternative in rest.split(separator: "|", omittingEmptySubsequences: false) {
      guard fallback == nil else { throw .malformedPlaceholder(text) }
      if alternative.count >= 2, alternative.first == "'", alternative.last == "'" {
        fallback = Self.contents(alternative.dropFirst().dropLast())
      } else if let name = TemplateName(String(alternative)) {
        names.append(name)
      } else {
        throw .unknownPlaceholder(String(alternative))
      }
    }
    guard !names.isEmpty, !(isJSON && fallback != nil), !(isOptional && fallback != nil) else {
      throw .malformedPlaceholder(text)
    }
  }

  /// `isVideo?'…':'…'` or `isVideo?'…'`; nil for anything else.
  private static func choice(in text: String) -> Choice? {
    guard let question = Question.allCases.first(where: { text.hasPrefix("\($0.rawValue)?'") }), text.hasSuffix("'")
    else {
      return nil
    }
    let literals = text.dropFirst(question.rawValue.count + 2).dropLast()
    let parts = literals.split(separator: "'", omittingEmptySubsequences: false)
    switch parts.count {
    case 1: return Choice(question: question, yes: contents(parts[0]), no: nil)
    case 3 where parts[1] == ":": return Choice(question: question, yes: contents(parts[0]), no: contents(parts[2]))
    default: return nil
    }
  }

  /// A literal as the contents of a JSON string.
  private static func contents(_ literal: Substring) -> [UInt8] {
    var writer = JSONWriter(reservingCapacity: 16)
    writer.escape(Array(literal.utf8)[...])
    return writer.bytes
  }
}
