// The request of gorush: POST /api/push, an object with an array of notifications.

internal import HTTPTypes
internal import Runtime

/// One notification of a request. Members that have no meaning here are not read; docs/migrating.md lists them.
struct GorushNotification {
  enum Platform: Int64 {
    case ios = 1
    case android, huawei

    /// As gorush names it in answers.
    var name: String { "\(self)" }
  }

  /// As gorush's `core.max_notification`.
  static let notificationsMax = 100
  static let tokensMax = 1000

  private(set) var id: String?
  /// Nil if gorush does not know the platform either.
  private(set) var platform: Platform?
  private(set) var tokens: [String] = []
  private(set) var topic: String?
  private(set) var condition: String?
  private(set) var pushType: String?
  /// An object.
  private(set) var data: JSONScanner.Value?
  /// When it expires, in seconds since 1970.
  private(set) var expiration: Int64?
  /// Seconds.
  private(set) var timeToLive: Int64?
  private(set) var isDevelopment = false
  private(set) var isProduction = false
  private(set) var isDryRun = false

  /// Reads a whole request.
  ///
  /// - Throws: 400 in gorush's words.
  static func all(of json: JSONScanner) throws(APIProblem) -> [GorushNotification] {
    guard let list = json.member("notifications"), list.kind == .array else {
      throw .badGorush("Missing notifications field.")
    }
    var notifications: [GorushNotification] = []
    var count = 0
    for element in json.elements(of: list) {
      if count < notificationsMax { notifications.append(try GorushNotification(json, element, at: count)) }
      count += 1
    }
    guard count > 0 else { throw .badGorush("Notifications field is empty.") }
    guard count <= notificationsMax else {
      throw .badGorush("Number of notifications(\(count)) over limit(\(notificationsMax))")
    }
    return notifications
  }

  private init(_ json: JSONScanner, _ value: JSONScanner.Value, at index: Int) throws(APIProblem) {
    func fault(_ member: String, _ what: String) -> APIProblem {
      .badGorush("notifications[\(index)]\(member) must be \(what)")
    }
    guard value.kind == .object else { throw fault("", "an object") }
    func member(_ name: StaticString, _ kind: JSONScanner.Kind, _ what: String) throws(APIProblem) -> JSONScanner.Value?
    {
      guard let found = json.member(name, of: value), found.kind != .null else { return nil }
      guard found.kind == kind else { throw fault(".\(name)", what) }
      return found
    }
    func text(_ name: StaticString) throws(APIProblem) -> String? {
      try member(name, .string, "a string").flatMap(json.text).flatMap { $0.isEmpty ? nil : $0 }
    }
    func integer(_ name: StaticString) throws(APIProblem) -> Int64? {
      guard let found = try member(name, .number, "a whole number") else { return nil }
      if let number = json.integer(found) { return number }
      // In JSON Schema, 60.0 and 6e1 are integers, and so is a number that no program can use.
      guard let number = Double(String(decoding: json.raw(found), as: UTF8.self)), number.rounded() == number else {
        throw fault(".\(name)", "a whole number")
      }
      return Int64(exactly: number) ?? (number < 0 ? .min : .max)
    }
    id = try text("notif_id")
    platform = try integer("platform").flatMap(Platform.init(rawValue:))
    if let list = try member("tokens", .array, "an array of strings") {
      for element in json.elements(of: list) {
        guard let token = json.text(element) else { throw fault(".tokens", "an array of strings") }
        guard tokens.count < Self.tokensMax else {
          throw fault(".tokens", "an array of at most \(Self.tokensMax) strings")
        }
        tokens.append(token)
      }
    }
    if let token = try text("to") { tokens.append(token) }
    topic = try text("topic")
    condition = try text("condition")
    pushType = try text("push_type")
    data = try member("data", .object, "an object")
    expiration = try integer("expiration")
    timeToLive = try integer("time_to_live")
    isDevelopment = try member("development", .boolean, "true or false").flatMap(json.boolean) ?? false
    isProduction = try member("production", .boolean, "true or false").flatMap(json.boolean) ?? false
    isDryRun = try member("dry_run", .boolean, "true or false").flatMap(json.boolean) ?? false
  }
}

extension APIProblem {
  /// 400: the request is not gorush's.
  fileprivate static func badGorush(_ detail: String) -> APIProblem {
    APIProblem(status: .badRequest, name: "invalid-field", detail: detail)
  }
}
