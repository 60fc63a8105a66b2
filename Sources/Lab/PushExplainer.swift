// `push-gateway-lab simulate --explain`: what a phone does with a push that a simulator accepted.

public import ArgumentParser
import Foundation
public import Phones
import Simulators

extension PhoneSystem: ExpressibleByArgument {}
extension PhoneVariant: ExpressibleByArgument {}

enum PushExplainer {
  /// Writes the lines of every push to standard error.
  static func observer(of system: PhoneSystem, variant: PhoneVariant) -> @Sendable (AcceptedPush) -> Void {
    { push in FileHandle.standardError.write(Data(text(of: push, on: system, variant: variant).utf8)) }
  }

  /// Lines for people: one for the push, with its id and without its token or content, and one for each phone that it
  /// may have reached.
  static func text(of push: AcceptedPush, on system: PhoneSystem, variant: PhoneVariant) -> String {
    guard let received = PhonePush(push) else { return "\(push.provider.rawValue) \(push.id): no JSON\n" }
    let lines = Phone.explain(received, on: system, variant: variant)
      .map { "  \($0.phone): \($0.does)  [\($0.rule)]\n" }
    return "\(push.provider.rawValue) \(push.kind) \(push.id)\n" + lines.joined()
  }
}

extension PhonePush {
  /// A push as its provider's simulator accepted it.
  init?(_ push: AcceptedPush) {
    let channel: Channel
    switch push.provider {
    case .apns: channel = push.kind == "voip" ? .voip : .apns
    case .fcm: channel = .fcm
    case .expo: channel = .expo
    case .webpush: channel = .webpush
    case .oauth: return nil
    }
    self.init(channel, message: push.message, collapseID: push.detail("apns-collapse-id"))
  }
}
