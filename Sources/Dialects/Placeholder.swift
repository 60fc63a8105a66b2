// One ${…} of a template: names to try in order, and what to do when none of them is there.

internal import Runtime

/// `${fromName|from|'Porteiro'}`: the first name that has a text, else the literal.
/// `${apartmentNumber?}`: the member it is the value of is left out when there is none.
/// `${metadata:json}`: the value as it stands in the payload, not as a string.
struct Placeholder: Equatable, Sendable {
  var names: [TemplateName] = []
  /// The literal at the end of the alternatives, as the contents of a JSON string.
  var fallback: [UInt8]?
  var isOptional = false
  var isJSON = false

  /// Reads what stands between `${` and `}`.
  init(_ text: String) throws(TemplateError.Reason) {
    var rest = text[...]
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
        var writer = JSONWriter(reservingCapacity: 16)
        writer.escape(Array(alternative.dropFirst().dropLast().utf8)[...])
        fallback = writer.bytes
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
}
