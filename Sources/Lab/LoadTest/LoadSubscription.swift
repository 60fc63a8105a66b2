// The subscriptions of simulated browsers: they have the simulator's keys and differ in their endpoints.

import Foundation
import Runtime

/// A browser's subscription, as `push-gateway-lab simulate` writes it into webpush-subscription.json.
struct LoadSubscription: Equatable, Sendable {
  /// The endpoint without the name at its end.
  private let base: String
  private let auth: String
  private let p256dh: String

  /// - Throws: an error that names the option and says what is wrong with the file.
  init(file: String) throws(LoadOptionError) {
    guard let content = FileManager.default.contents(atPath: file) else {
      throw LoadOptionError("--webpush-subscription \(file): there is no such file, or it cannot be read")
    }
    guard let json = try? JSONScanner(Array(content)), json.root.kind == .object,
      let endpoint = json.member("endpoint").flatMap(json.text), let slash = endpoint.lastIndex(of: "/"),
      let keys = json.member("keys"), keys.kind == .object,
      let auth = json.member("auth", of: keys).flatMap(json.text),
      let p256dh = json.member("p256dh", of: keys).flatMap(json.text)
    else {
      throw LoadOptionError(
        "--webpush-subscription \(file): must be the webpush-subscription.json of push-gateway-lab simulate")
    }
    (base, self.auth, self.p256dh) = (String(endpoint[...slash]), auth, p256dh)
  }

  /// The device token of a browser.
  /// - Parameter name: the last part of its endpoint.
  func text(name: String) -> String { "\(base)\(name)#auth=\(auth)&p256dh=\(p256dh)" }
}
