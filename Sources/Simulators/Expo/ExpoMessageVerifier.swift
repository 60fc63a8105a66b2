// Checks the messages of one send request field by field.

internal import Runtime

/// A valid message, as ranges of the body, one for each recipient.
struct ExpoMessage {
  var token: ArraySlice<UInt8> = []
  var priority: ArraySlice<UInt8> = [UInt8]("default")[...]
  var timeToLive: ArraySlice<UInt8>?
  var expiration: ArraySlice<UInt8>?
  var collapseID: ArraySlice<UInt8>?
  /// The text of the message object.
  var text: ArraySlice<UInt8> = []
  /// Size of the message in bytes, without its `to`.
  var size = 0

  /// The project of a token: the NAME of `…[project-NAME-…`, else `default`.
  var project: ArraySlice<UInt8> {
    let name = tokenBody
    guard name.hasPrefix("project-") else { return Self.defaultProject }
    return name.dropFirst(8).prefix { $0 != UInt8(ascii: "-") }
  }

  /// The part of a token between its brackets, or a whole bare UUID.
  var tokenBody: ArraySlice<UInt8> {
    guard let bracket = token.firstIndex(of: UInt8(ascii: "[")) else { return token }
    return token[(bracket + 1)...].dropLast()
  }

  private static let defaultProject = [UInt8]("default")[...]
}

struct ExpoMessageVerifier {
  static let messagesMax = 100
  private static let fields: [StaticString] = [
    "to", "title", "subtitle", "body", "data", "sound", "badge", "ttl", "expiration", "priority", "interruptionLevel",
    "channelId", "categoryId", "mutableContent", "collapseId", "_contentAvailable", "richContent", "icon",
  ]

  /// The messages of a request, one for each recipient, and whether the request was a single message.
  func verify(_ body: [UInt8]) throws(ExpoError) -> (messages: [ExpoMessage], isSingle: Bool) {
    let json: JSONScanner
    do { json = try JSONScanner(body) } catch { throw .validation("The request body is not valid JSON.") }
    var messages: [ExpoMessage] = []
    switch json.root.kind {
    case .object: try verify(json.root, json, at: "", &messages)
    case .array:
      for (index, element) in json.elements(of: json.root).enumerated() {
        try verify(element, json, at: "[\(index)]", &messages)
      }
    default: throw .validation("\"value\" must be an array or an object")
    }
    guard !messages.isEmpty else { throw .validation("\"value\" must contain at least 1 items") }
    guard messages.count <= Self.messagesMax else {
      throw ExpoError(
        status: 400, code: "PUSH_TOO_MANY_NOTIFICATIONS",
        message: "You can send a maximum of 100 notifications per request (received \(messages.count)); divide your "
          + "requests.")
    }
    try checkProjects(messages)
    let isSingle = json.root.kind == .object && messages.count == 1
    return (messages, isSingle)
  }

  private func verify(
    _ value: JSONScanner.Value, _ json: JSONScanner, at path: String, _ messages: inout [ExpoMessage]
  ) throws(ExpoError) {
    func wrong(_ field: String, _ what: String) -> ExpoError {
      .validation("\"\(path)\(path.isEmpty ? "" : ".")\(field)\" \(what)")
    }
    guard value.kind == .object else { throw .validation("\"\(path)\" must be of type object") }
    var message = ExpoMessage()
    var recipients: JSONScanner.Value?
    for member in json.members(of: value) {
      guard let field = Self.fields.first(where: { json.isKey(member, $0) }) else {
        throw wrong(String(decoding: json.key(member), as: UTF8.self), "is not allowed")
      }
      let name = "\(field)"
      let content = member.value
      switch name {
      case "to": recipients = content
      case "ttl", "expiration":
        guard let number = json.integer(content), number >= 0 else { throw wrong(name, "must be a positive integer") }
        if name == "ttl" { message.timeToLive = json.raw(content) } else { message.expiration = json.raw(content) }
      case "badge":
        guard json.integer(content) != nil || content.kind == .null else { throw wrong(name, "must be an integer") }
      case "priority":
        guard let priority = json.contents(content),
          priority.equals("default") || priority.equals("normal") || priority.equals("high")
        else { throw wrong(name, "must be one of [default, normal, high]") }
        message.priority = priority
      case "interruptionLevel":
        guard let level = json.text(content), ["active", "critical", "passive", "time-sensitive"].contains(level) else {
          throw wrong(name, "must be one of [active, critical, passive, time-sensitive]")
        }
      case "mutableContent", "_contentAvailable":
        guard content.kind == .boolean else { throw wrong(name, "must be a boolean") }
      case "data", "richContent":
        guard content.kind == .object else { throw wrong(name, "must be of type object") }
      case "sound":
        guard content.kind != .number, content.kind != .boolean, content.kind != .array else {
          throw wrong(name, "must be a string, an object or null")
        }
      case "collapseId":
        guard let id = json.contents(content), id.count <= 64 else {
          throw wrong(name, "must be a string of at most 64")
        }
        message.collapseID = id
      default:
        guard content.kind == .string else { throw wrong(name, "must be a string") }
      }
    }
    guard let recipients else { throw wrong("to", "is required") }
    guard message.timeToLive != nil || message.expiration != nil else {
      throw wrong("ttl", "or expiration is required: the default is four weeks on Android")
    }
    message.text = json.raw(value)
    message.size = value.range.count - recipients.range.count
    try append(message, to: recipients, json, at: path, &messages)
  }

  private func append(
    _ message: ExpoMessage, to recipients: JSONScanner.Value, _ json: JSONScanner, at path: String,
    _ messages: inout [ExpoMessage]
  ) throws(ExpoError) {
    let tokens = recipients.kind == .array ? Array(json.elements(of: recipients)) : [recipients]
    for value in tokens {
      guard let token = json.contents(value), Self.isToken(token) else {
        throw .validation("\"\(path)\(path.isEmpty ? "" : ".")to\" is not a valid Expo push token")
      }
      var copy = message
      copy.token = token
      messages.append(copy)
    }
  }

  /// `ExponentPushToken[…]`, `ExpoPushToken[…]` or a bare UUID.
  static func isToken(_ token: ArraySlice<UInt8>) -> Bool {
    if token.isUUID { return true }
    guard token.hasPrefix("ExponentPushToken[") || token.hasPrefix("ExpoPushToken["),
      token.last == UInt8(ascii: "]"), let bracket = token.firstIndex(of: UInt8(ascii: "["))
    else { return false }
    let body = token[(bracket + 1)...].dropLast()
    return !body.isEmpty
      && body.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "]") && $0 != UInt8(ascii: "\\") }
  }

  private func checkProjects(_ messages: [ExpoMessage]) throws(ExpoError) {
    guard let first = messages.first?.project, messages.contains(where: { $0.project != first }) else { return }
    var projects: [(name: String, tokens: [ArraySlice<UInt8>])] = []
    for message in messages {
      let name = "@simulator/\(message.project.text)"
      if let index = projects.firstIndex(where: { $0.name == name }) {
        projects[index].tokens.append(message.token)
      } else {
        projects.append((name, [message.token]))
      }
    }
    guard var error = ExpoError.named("PUSH_TOO_MANY_EXPERIENCE_IDS") else { return }
    error.projects = projects
    throw error
  }
}
