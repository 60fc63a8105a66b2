// What is wrong with a template, found when it is compiled: at start-up, never at the first call.

struct TemplateError: Error, Equatable, CustomStringConvertible, Sendable {
  enum Reason: Error, Equatable, Sendable {
    case notJSON(JSONErrorText)
    case notAnObject
    case unknownSection(String)
    case unknownPlaceholder(String)
    case malformedPlaceholder(String)
    case unknownDirective(String)
    case repeatedKey(String)
    case notAString
    case reservedKey(String)
  }
  typealias JSONErrorText = String

  /// Where: `fcm.invite.data.from`.
  var path: String
  var reason: Reason

  var description: String { "\(path.isEmpty ? "the dialect" : path): \(message)" }

  private var message: String {
    switch reason {
    case .notJSON(let error): error
    case .notAnObject: "must be a JSON object"
    case .unknownSection(let name):
      "no such section: \(name); a dialect has apns, fcm and expo, and in each invite, cancel, missed_call, notification,"
        + " all of them also with .ios or .android behind"
    case .unknownPlaceholder(let name):
      "unknown placeholder ${\(name)}\(Suggestion.text(for: name, among: TemplateName.plainNames)); there are "
        + TemplateName.plainNames.joined(separator: ", ") + ", metadata.NAME and payload.NAME"
    case .malformedPlaceholder(let text):
      "malformed placeholder ${\(text)}; it is ${name}, ${name?}, ${name|other|'literal'} or ${name:json}"
    case .unknownDirective(let name): "unknown directive \(name); there are $string and $payload"
    case .repeatedKey(let name): "the key \(name) stands twice"
    case .notAString: "every value of an FCM data object is a string; use $string for an object, and no :json"
    case .reservedKey(let name):
      "\(name) is a reserved FCM data key (so are from, message_type and all that begins with google or gcm)"
    }
  }
}
