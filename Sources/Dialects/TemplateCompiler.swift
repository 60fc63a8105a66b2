// Compiles the JSON of a template to instructions. All checks that need no call are made here.

internal import Providers
internal import Runtime

/// Compiles the template of one provider and kind.
///
/// Any string in a template may contain placeholders (`Placeholder`). Directives are used in place of a member's name:
/// - `{"$string": {…}}`: the object as JSON text in a string.
/// - `"$payload": "others"`: the members of the payload that the object does not name itself. They become texts in an FCM `data`
///   object, and keep their types elsewhere.
/// - `"$payload": "twi_*"`: the members of the payload whose names begin with `twi_`, as texts.
/// - `"$metadata": "others"`: the members of `metadata` that the object does not name itself.
/// - `"$metadata": "texts"`: the same members as texts.
/// - `$push`, in the outermost object: read by `PushDirective`.
struct TemplateCompiler {
  private let json: JSONScanner
  private let provider: ProviderKind
  private var path: String
  private var template = PushTemplate()
  private var faults: [TemplateError] = []

  /// - Returns: the template and its faults. It can be used only if there are none.
  static func compile(
    _ template: JSONScanner.Value, of json: JSONScanner, for provider: ProviderKind, _ kind: PushTemplateKind,
    at path: String
  ) -> (template: PushTemplate, faults: [TemplateError]) {
    var compiler = TemplateCompiler(json: json, provider: provider, path: path)
    guard template.kind == .object else { return (compiler.template, [compiler.error(.notAnObject)]) }
    for fault in TemplateRules.faults(in: template, of: json, for: provider, kind) {
      compiler.faults.append(
        TemplateError(path: fault.member.map { "\(path).\($0)" } ?? path, reason: fault.reason))
    }
    compiler.object(template, provider.templatePlace)
    if compiler.faults.isEmpty, !TemplateRules.isNeverEmpty(compiler.template) {
      compiler.faults.append(compiler.error(.maybeEmpty))
    }
    return (compiler.template, compiler.faults)
  }

  /// Compiles an object outside the body. It has no reserved keys.
  static func compilePart(
    _ object: JSONScanner.Value, of json: JSONScanner, for provider: ProviderKind, at path: String
  ) -> (template: PushTemplate, faults: [TemplateError]) {
    var compiler = TemplateCompiler(json: json, provider: provider, path: path)
    guard object.kind == .object else { return (compiler.template, [compiler.error(.notAnObject)]) }
    compiler.object(object, .inside)
    return (compiler.template, compiler.faults)
  }

  /// The place of an object.
  enum Place: Equatable {
    /// The `data` of an FCM message: all values are strings.
    case fcmData
    /// A whole message, whose values may have any type.
    case message(reserved: PushTemplate.OtherMembers.Reserved)
    case inside

    var reserved: PushTemplate.OtherMembers.Reserved {
      switch self {
      case .fcmData: .fcm
      case .message(let reserved): reserved
      case .inside: .none
      }
    }
  }

  private init(json: JSONScanner, provider: ProviderKind, path: String) {
    self.json = json
    self.provider = provider
    self.path = path
  }

  // MARK: - Values

  private mutating func value(_ value: JSONScanner.Value, _ place: Place) throws(TemplateError) {
    switch value.kind {
    case .object:
      if let inner = soleString(of: value) { return try nested(inner) }
      object(value, .inside)
    case .array:
      literal([UInt8(ascii: "[")])
      for element in json.elements(of: value) { try self.value(element, .inside) }
      part([UInt8(ascii: "]")])
    case .string: try string(value, place)
    case .number, .boolean, .null: literal(Array(json.raw(value)))
    }
  }

  /// Records the faults of a member and continues with the next one.
  private mutating func object(_ object: JSONScanner.Value, _ place: Place) {
    let outer = path
    defer { path = outer }
    let names = json.members(of: object).map { json.key($0) }
    literal([UInt8(ascii: "{")])
    for (index, member) in json.members(of: object).enumerated() {
      path = outer + "." + String(decoding: names[index], as: UTF8.self)
      do throws(TemplateError) {
        try self.member(index, of: names, member.value, place)
      } catch {
        faults.append(error)
      }
    }
    part([UInt8(ascii: "}")])
  }

  private mutating func member(
    _ index: Int, of names: [[UInt8]], _ value: JSONScanner.Value, _ place: Place
  ) throws(TemplateError) {
    let name = String(decoding: names[index], as: UTF8.self)
    guard !names[..<index].contains(names[index]) else { throw error(.repeatedKey(name)) }
    if name.hasPrefix("$") {
      if name == "$push", place != .inside { return }
      guard let others = otherMembers(name, json.text(value), besides: names, place) else {
        throw error(.unknownDirective(name))
      }
      return emit(.otherMembers(others))
    }
    if value.kind == .null, names.contains(Self.metadataDirective) { return }  // nor the metadata's
    if place == .fcmData {
      guard !FCMDataKey.isReserved(names[index]) else { throw error(.reservedKey(name)) }
      if value.kind == .null { return }  // no such member, not even the payload's
      guard value.kind == .string || soleString(of: value) != nil else { throw error(.notAString) }
    }
    try member(key: names[index], value, place)
  }

  private mutating func member(key: [UInt8], _ value: JSONScanner.Value, _ place: Place) throws(TemplateError) {
    var writer = JSONWriter(reservingCapacity: key.count + 3)
    writer.key(key)
    guard value.kind == .string, let placeholder = try soleOptional(value) else {
      literal(writer.bytes)
      return try self.value(value, place)
    }
    guard !(place == .fcmData && placeholder.isJSON) else { throw error(.notAString) }
    let key = pool(writer.bytes)
    if let choice = placeholder.choice {
      return emit(.optionalChoice(choice.question, key: key, yes: pool(choice.yes)))
    }
    let names = pool(placeholder.names)
    if placeholder.isUUID { return emit(.optionalUUID(key: key, names)) }
    emit(placeholder.isJSON ? .optionalJSON(key: key, names) : .optionalText(key: key, names))
  }

  private mutating func nested(_ value: JSONScanner.Value) throws(TemplateError) {
    emit(.beginNested)
    try self.value(value, .inside)
    emit(.endNested)
  }

  /// The meaning of `$payload` or `$metadata`; nil for any other directive or value.
  private func otherMembers(
    _ directive: String, _ word: String?, besides named: [[UInt8]], _ place: Place
  ) -> PushTemplate.OtherMembers? {
    var others = PushTemplate.OtherMembers(
      reserved: place.reserved, named: named, asText: place == .fcmData,
      coversBaseCallData: BaseCallData.keys.allSatisfy { key in
        named.contains(Array(key.utf8)) || place == .fcmData && FCMDataKey.isReserved(key.utf8)
      })
    switch (directive, word) {
    case ("$payload", "others"?): break
    case ("$payload", let word?) where word.hasSuffix("*") && word.count > 1:
      others.prefix = Array(word.dropLast().utf8)
      others.asText = true
      others.coversBaseCallData = !BaseCallData.keys.contains { $0.utf8.starts(with: others.prefix) }
    case ("$metadata", "others"?), ("$metadata", "texts"?):
      others.ofMetadata = true
      others.coversBaseCallData = false
      others.asText = others.asText || word == "texts"
    default: return nil
    }
    return others
  }

  private static let metadataDirective = Array("$metadata".utf8)

  /// The value inside `{"$string": …}`; nil for any other value.
  private func soleString(of value: JSONScanner.Value) -> JSONScanner.Value? {
    let members = Array(json.members(of: value))
    guard members.count == 1, json.isKey(members[0], "$string") else { return nil }
    return members[0].value
  }

  // MARK: - Strings

  private mutating func string(_ value: JSONScanner.Value, _ place: Place) throws(TemplateError) {
    let parts = try parts(of: value)
    if parts.count == 1, case .placeholder(let placeholder) = parts[0], placeholder.isJSON {
      guard place != .fcmData else { throw error(.notAString) }
      emit(.json(pool(placeholder.names)))
      return
    }
    literal([UInt8(ascii: "\"")])
    for part in parts {
      switch part {
      case .literal(let contents): self.part(contents)
      case .placeholder(let placeholder):
        guard !placeholder.isJSON, !placeholder.isOptional else {
          throw error(.malformedPlaceholder(placeholder.names.map(\.spelling).joined(separator: "|")))
        }
        if let choice = placeholder.choice, let no = choice.no {
          emit(.choice(choice.question, yes: pool(choice.yes), no: pool(no)))
          continue
        }
        emit(.text(pool(placeholder.names), fallback: placeholder.fallback.map { pool($0) }))
      }
    }
    part([UInt8(ascii: "\"")])
  }

  /// The placeholder of an optional member; nil for any other string.
  private func soleOptional(_ value: JSONScanner.Value) throws(TemplateError) -> Placeholder? {
    let parts = try parts(of: value)
    guard parts.count == 1, case .placeholder(let placeholder) = parts[0], placeholder.isOptional else { return nil }
    return placeholder
  }

  /// A piece of a string in a template; a literal is escaped already.
  private enum Part {
    case literal([UInt8])
    case placeholder(Placeholder)
  }

  private func parts(of value: JSONScanner.Value) throws(TemplateError) -> [Part] {
    var parts: [Part] = []
    var rest = (json.text(value) ?? "")[...]
    while let dollar = rest.firstIndex(of: "$") {
      let brace = rest.index(after: dollar)
      guard brace < rest.endIndex, rest[brace] == "{", let end = rest[brace...].firstIndex(of: "}") else {
        throw error(.malformedPlaceholder(String(rest[dollar...].prefix(32))))
      }
      Self.append(rest[..<dollar], to: &parts)
      do throws(TemplateError.Reason) {
        parts.append(.placeholder(try Placeholder(String(rest[rest.index(after: brace)..<end]))))
      } catch {
        throw self.error(error)
      }
      rest = rest[rest.index(after: end)...]
    }
    Self.append(rest, to: &parts)
    return parts
  }

  private static func append(_ text: Substring, to parts: inout [Part]) {
    guard !text.isEmpty else { return }
    var writer = JSONWriter(reservingCapacity: text.utf8.count)
    writer.escape(Array(text.utf8)[...])
    parts.append(.literal(writer.bytes))
  }

  // MARK: - Instructions

  private mutating func emit(_ instruction: PushTemplate.Instruction) { template.instructions.append(instruction) }

  /// Adds JSON at the start of a value. It is merged with the literal before it, because the comma between them is known here.
  private mutating func literal(_ json: [UInt8]) {
    guard let before = lastLiteral else { return emit(.literal(pool(json))) }
    var writer = JSONWriter(reservingCapacity: 0)
    writer.bytes = template.literals
    writer.raw(json)
    template.literals = writer.bytes
    extendLast(from: before)
  }

  /// Adds bytes before which no comma can stand.
  private mutating func part(_ bytes: [UInt8]) {
    guard let before = lastLiteral else { return emit(.part(pool(bytes))) }
    template.literals += bytes
    extendLast(from: before)
  }

  /// The bytes of the last instruction if it is a literal or a part. These are the last bytes of the pool.
  private var lastLiteral: PushTemplate.Literal? {
    switch template.instructions.last {
    case .literal(let range)?, .part(let range)?: range
    default: nil
    }
  }

  private mutating func extendLast(from before: PushTemplate.Literal) {
    let extended = before.lowerBound..<template.literals.count
    let last = template.instructions.count - 1
    if case .literal = template.instructions[last] {
      template.instructions[last] = .literal(extended)
    } else {
      template.instructions[last] = .part(extended)
    }
  }

  private mutating func pool(_ bytes: [UInt8]) -> PushTemplate.Literal {
    template.literals += bytes
    return template.literals.count - bytes.count..<template.literals.count
  }

  private mutating func pool(_ names: [TemplateName]) -> PushTemplate.Names {
    template.names += names
    return template.names.count - names.count..<template.names.count
  }

  private func error(_ reason: TemplateError.Reason) -> TemplateError { TemplateError(path: path, reason: reason) }
}

/// The names that FCM reserves in `data` (firebase.google.com, REST v1, `Message.data`), and the empty name, which it refuses.
enum FCMDataKey {
  static func isReserved(_ key: some Sequence<UInt8>) -> Bool {
    key.elementsEqual("".utf8) || key.elementsEqual("from".utf8) || key.elementsEqual("message_type".utf8)
      || key.starts(with: "google".utf8)
      || key.starts(with: "gcm".utf8)
  }
}
