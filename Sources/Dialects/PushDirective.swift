// `$push` of a template: how the push is sent, and the members of an FCM message beside its data. Checked at start-up.

internal import Providers
internal import PushModel
internal import Runtime

/// Reads the `$push` of one template.
struct PushDirective {
  let json: JSONScanner
  let provider: ProviderKind
  let kind: PushTemplateKind
  let platform: DevicePlatform
  let path: String
  private(set) var faults: [TemplateError] = []
  private var isHeadless = true

  init(
    json: JSONScanner, provider: ProviderKind, kind: PushTemplateKind, platform: DevicePlatform, path: String
  ) {
    self.json = json
    self.provider = provider
    self.kind = kind
    self.platform = platform
    self.path = path
  }

  private var known: [String] { provider.pushMembers(for: kind) }

  /// Reads `$push`, and checks the whole template against the provider's rules.
  mutating func read(_ object: JSONScanner.Value, into template: inout MessageTemplate) {
    guard object.kind == .object else { return }
    var hasAPNsBlock = false
    if let push = json.member("$push", of: object) {
      guard push.kind == .object else { return note("$push", .notAnObject) }
      var seen: Set<String> = []
      for member in json.members(of: push) {
        let name = String(decoding: json.key(member), as: UTF8.self)
        guard known.contains(name) else {
          note("$push.\(name)", .unknownPushMember(name, among: known))
          continue
        }
        guard seen.insert(name).inserted else {
          note("$push.\(name)", .repeatedKey(name))
          continue
        }
        hasAPNsBlock = hasAPNsBlock || name == "apns"
        read(name, member.value, into: &template)
      }
    }
    if provider == .fcm, !hasAPNsBlock, platform != .android { readBlock(nil, into: &template) }
    check(object, template)
  }

  private mutating func read(_ name: String, _ value: JSONScanner.Value, into template: inout MessageTemplate) {
    switch name {
    case "type": readType(value, into: &template)
    case "priority": readPriority(value, into: &template)
    case "expiration":
      switch (json.text(value), json.integer(value)) {
      case ("deadline"?, _): template.manner.isStored = true
      case (_, 0?): template.manner.isStored = false
      default: note("$push.expiration", .badPushValue("0 (tried once, never stored) or deadline"))
      }
    case "ttl":
      if json.text(value) == "deadline" {
        template.manner.timeToLiveMax = nil
      } else if let seconds = json.integer(value), (0...2_419_200).contains(seconds) {
        template.manner.timeToLiveMax = seconds
      } else {
        note("$push.ttl", .badPushValue("seconds, 0 to 2419200, or deadline; it never reaches beyond the deadline"))
      }
    case "collapse":
      switch json.text(value) {
      case "callId"?: template.collapse = .callID
      case "none"?: template.collapse = .none
      default: note("$push.collapse", .badPushValue("callId or none"))
      }
    case "headless":
      guard let flag = json.boolean(value) else { return note("$push.headless", .badPushValue("true or false")) }
      isHeadless = flag
    case "after_cancel":
      guard let flag = json.boolean(value) else { return note("$push.after_cancel", .badPushValue("true or false")) }
      template.isSaidByCancel = !flag
    case "apns": readBlock(value, into: &template)
    case "notification": template.notification = part("notification", value)
    default:
      template.android = part("android", value)
      for member in value.kind == .object ? Array(json.members(of: value)) : [] {
        let name = String(decoding: json.key(member), as: UTF8.self)
        let allowed = ["notification", "restricted_package_name", "fcm_options", "bandwidth_constrained_ok"]
        if !allowed.contains(name) { note("$push.android.\(name)", .unknownPushMember(name, among: allowed)) }
      }
    }
  }

  private mutating func readType(_ value: JSONScanner.Value, into template: inout MessageTemplate) {
    switch (json.text(value), kind) {
    case ("voip"?, .invite): return
    case ("voip"?, .cancel):
      template.manner.apnsType = .voip
      template.manner.isStored = false
    case ("alert"?, let kind) where kind.isNotification: template.manner.apnsType = .alert
    case ("background"?, let kind) where kind.isNotification:
      template.manner.apnsType = .background
      if template.manner.priority == .high { template.manner.priority = .normal }
    default:
      let takes =
        kind.isNotification
        ? "alert or background: only what is about a ringing call is a VoIP push"
        : "voip: otherwise an iPhone neither rings nor stops"
      note("$push.type", .badPushValue(takes))
    }
  }

  private mutating func readPriority(_ value: JSONScanner.Value, into template: inout MessageTemplate) {
    let number = json.integer(value)
    let word = json.text(value)?.lowercased()
    switch provider {
    case .apns:
      guard let number, let priority: PushManner.Priority = [10: .high, 5: .normal, 1: .low][number] else {
        return note("$push.priority", .badPushValue("10, 5 or 1"))
      }
      if !kind.isNotification, priority != .high { return note("$push.priority", .badPushValue("10 for a VoIP push")) }
      template.manner.priority = priority
    case .fcm, .expo, .webpush:
      var words: [String: PushManner.Priority] = ["high": .high, "normal": .normal]
      if provider == .webpush { words["low"] = .low }
      guard let word, let priority = words[word] else {
        return note("$push.priority", .badPushValue(words["low"] == nil ? "high or normal" : "high, normal or low"))
      }
      template.manner.priority = priority
    }
  }

  /// `apns` of an FCM message; nil for the kind's default.
  private mutating func readBlock(_ value: JSONScanner.Value?, into template: inout MessageTemplate) {
    if let value, value.kind == .null || json.text(value) == "none" { return template.apns = nil }
    let block = APNsBlock(kind: kind)
    switch value.map({ block.source($0, json) }) ?? .success(block.standard) {
    case .failure(let reason): note("$push.apns", reason)
    case .success(let source):
      let scanner = JSONScanner(trusting: Array(source.utf8))
      let (part, itsFaults) = TemplateCompiler.compilePart(
        scanner.root, of: scanner, for: provider, at: "\(path).$push.apns")
      template.apns = part
      faults += itsFaults
    }
  }

  private mutating func part(_ name: String, _ value: JSONScanner.Value) -> PushTemplate? {
    let (part, itsFaults) = TemplateCompiler.compilePart(value, of: json, for: provider, at: "\(path).$push.\(name)")
    faults += itsFaults
    return part
  }

  // MARK: - The template as a whole

  private mutating func check(_ object: JSONScanner.Value, _ template: MessageTemplate) {
    switch provider {
    case .apns where kind.isNotification && template.manner.apnsType == .background:
      if !TemplateRules.isForBackground(object, json) {
        faults.append(TemplateError(path: path, reason: .backgroundWithAlert))
      }
      if template.manner.priority == .high { note("$push.priority", .badPushValue("5 or 1 for the type background")) }
    case .apns where kind.isNotification && !TemplateRules.hasAlert(object, json):
      faults.append(TemplateError(path: path, reason: .noAlert))
    case .expo where rings:
      for member in json.members(of: object) {
        let name = String(decoding: json.key(member), as: UTF8.self)
        if TemplateRules.expoVisible.contains(name) { note(name, .visibleCall(name)) }
      }
    case .fcm where rings:
      let android = json.member("$push", of: object).flatMap { json.member("android", of: $0) }
      if template.notification != nil { note("$push.notification", .visibleCall("notification")) }
      if let android, json.member("notification", of: android) != nil {
        note("$push.android.notification", .visibleCall("notification"))
      }
    default: break
    }
  }

  /// Whether an Android app handles it itself, so the system must not show it.
  private var rings: Bool { isHeadless && !kind.isNotification && platform != .ios }

  private mutating func note(_ member: String, _ reason: TemplateError.Reason) {
    faults.append(TemplateError(path: "\(path).\(member)", reason: reason))
  }
}
