// The rule that an invite is not sent again before its call was looked up.

import Dispatching
import Providers
import PushModel
import Queue

/// Watches the invites of one life.
struct LookUpChecker {
  /// The invites that are with their providers, by their tags.
  private var sent: [UInt64: DeliveryKey] = [:]
  /// Invites that came back, and whose calls were not looked up since.
  private var failed: Set<DeliveryKey> = []
  private var asked: Set<Int64> = []

  mutating func willDo(
    _ action: DispatcherAction, _ key: (PushRequest) -> DeliveryKey, _ violate: (String, String) -> Void
  ) {
    switch action {
    case .lookUpEnded(let calls): asked = Set(calls)
    case .send(_, let requests):
      for request in requests where request.kind == .invite {
        let key = key(request)
        if failed.contains(key) {
          violate("An invite is not sent again before a look-up found that its call rings.", key.story)
        }
        sent[request.tag] = key
      }
    default: break
    }
  }

  mutating func willHear(_ event: DispatcherEvent) {
    switch event {
    // A claim reads whether the calls of its invites ring.
    case .claimed(_, .success(let claimed)): for delivery in claimed.deliveries { failed.remove(delivery.key) }
    case .endedFound(.success): failed = failed.filter { !asked.contains($0.outboxID) }
    case .provider(.results(let results), _):
      for result in results { if let key = sent.removeValue(forKey: result.tag) { failed.insert(key) } }
    default: break
    }
  }
}
