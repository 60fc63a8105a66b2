// What phones do, in words.

extension PhoneReaction: CustomStringConvertible {
  public var description: String {
    switch self {
    case .rings(let ring): ring.description
    case .stops: "stops ringing"
    case .shows(let title, let body, let tap): "shows “\(title)” / “\(body)”; a tap leads to: \(tap)"
    case .replaces(let title, let body, let tap): "turns that into “\(title)” / “\(body)”; a tap leads to: \(tap)"
    case .wakes: "wakes the app, which shows nothing"
    case .ignores: "ignores it"
    case .crashes: "the app ends"
    }
  }
}

extension PhoneRing: CustomStringConvertible {
  public var description: String {
    var words = "rings\(isOnlyIfWoken ? " if iOS wakes the app" : "")\(isVideo ? " (video)" : ""): “\(caller)”"
    if !canBeAnswered { words += ", cannot be answered" }
    if let filedUnder { words += ", filed under \(filedUnder)" }
    return words
  }
}

extension Phone {
  /// The reactions of all phones that this push may have reached. States with the same reaction share a line.
  ///
  /// - Parameter platforms: the platforms that the token can belong to; a token alone does not show it.
  public static func explain(
    _ push: PhonePush, on system: PhoneSystem, variant: PhoneVariant = .today
  ) -> [(phone: String, does: String, rule: String)] {
    let platforms: [PhonePlatform] =
      switch push.channel {
      case .voip, .apns: [.ios]
      case .fcm, .expo: [.ios, .android]
      case .webpush: [.web]
      }
    var lines: [(phone: String, does: String, rule: String)] = []
    for platform in platforms {
      var groups: [(outcome: PhoneOutcome, states: [PhoneState])] = []
      for state in PhoneState.allCases {
        let outcome = Phone(system, platform, state, variant: variant).receives(push)
        if let index = groups.firstIndex(where: { $0.outcome == outcome }) {
          groups[index].states.append(state)
        } else {
          groups.append((outcome, [state]))
        }
      }
      for (outcome, states) in groups {
        let name =
          switch platform {
          case .ios: "iPhone"
          case .android: "Android"
          case .web: "browser"
          }
        let when = states.count == PhoneState.allCases.count ? "" : ", \(states.map(\.rawValue).joined(separator: "/"))"
        lines.append((name + when, outcome.reactions.map(\.description).joined(separator: "; "), outcome.rule))
      }
    }
    return lines
  }
}
