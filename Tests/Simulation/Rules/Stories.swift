// Short texts for the events of a seed, in the terms of the project.

import Dispatching
import MemoryOutbox
import Providers
import Queue
import Runtime

extension DeliveryKey {
  /// As in "12/0": the call's row and the number of the push.
  var story: String { "\(outboxID)/\(pushNumber)" }
}

extension DeliveryLease {
  var story: String { "\(key.story)@\(lease)" }
}

extension Settlement {
  var story: String { "\(lease.story) \(outcome.word)\(reason.map { " \($0)" } ?? "")" }
}

extension Parking {
  var story: String {
    guard let delay else { return "\(lease.story) released" }
    return "\(lease.story) \(reason ?? "") \(delay.milliseconds) ms"
  }
}

extension OutboxWrite {
  var story: String {
    switch self {
    case .settle(let rows): "settle \(rows.map(\.story))"
    case .settledAmong(let rows): "settled? \(rows.map(\.lease.story))"
    case .park(let rows): "park \(rows.map(\.story))"
    case .disown(let rows): "disown \(rows.map(\.story))"
    case .invalidate(let rows): "invalidate \(rows.count) tokens"
    case .hold(let rows): "hold \(rows.map(\.lane))"
    case .correct(let rows): "correct \(rows.count) tokens"
    }
  }
}

extension Statement {
  var story: String {
    let what =
      switch action {
      case .register: "register"
      case .beat(let mayReap): mayReap ? "beat and reap" : "beat"
      case .claim(let number, _, _): "claim \(number)"
      case .forget(let number): "forget \(number)"
      case .scan(let page): "scan from \(page ?? 0)"
      case .write(let batch, let write): "batch \(batch): \(write.story)"
      case .lookUpEnded(let calls): "ended? \(calls)"
      case .sync: "sync"
      case .claimJob: "take job"
      case .runJob(_, let name): "run \(name)"
      case .followUp(let kind, _): "follow up \(kind)"
      case .report: "report"
      case .send, .withdraw, .permit, .tell, .log, .logOpening: ""
      }
    return gateway.map { "[\($0)] \(what)" } ?? what
  }
}

extension Statement.Answer {
  var story: String {
    switch self {
    case .done: "done"
    case .registered(let gateway): "gateway \(gateway)"
    case .beat(let isAlive): isAlive ? "alive" : "dead"
    case .claimed(let rows):
      "\(rows.map { "\($0.delivery.key.story)\($0.call.rings(for: $0.delivery.userID) ? "" : " over")" })"
    case .count(let count): "\(count)"
    case .page(let page): "\(page.leases.map(\.story))"
    case .settled(let keys): "\(keys.map(\.story).sorted())"
    case .ended(let ended): "\(ended.calls.sorted()), declined \(ended.decliners.keys.sorted())"
    case .job(let name): name ?? "none"
    }
  }
}

extension Result where Success == Statement.Answer, Failure == OutboxError {
  var story: String {
    switch self {
    case .success(let answer): answer.story
    case .failure(let error): "\(error.code)"
    }
  }
}

extension DispatcherEvent {
  /// Nil if the server's line already shows it.
  var story: String? {
    switch self {
    case .outbox(let event): "hears \(event)"
    case .provider(.results(let results), _): "outcome \(results.map { "\($0.outcome)" })"
    case .provider(.capacity(let capacity), let lane): "lane \(lane) has capacity \(capacity)"
    case .claimed(let number, .success(let claimed)) where !claimed.deliveries.isEmpty:
      "got claim \(number): \(claimed.deliveries.map(\.key.story))"
    case .drain: "drains"
    default: nil
    }
  }
}

extension DispatcherAction {
  /// Nil if the server's line will show it.
  var story: String? {
    switch self {
    case .send(let lane, let requests): "lane \(lane): send \(requests.map(\.numbers.story))"
    case .withdraw(let lane, let tags, _): "lane \(lane): withdraw \(tags.count)"
    case .permit(let until): "permit until \(until.nanoseconds / 1_000_000) ms of its clock"
    case .tell(let lane, let news): "lane \(lane): tells others \(news)"
    case .log(_, let message, let metadata): "log: \(message) \(metadata)"
    case .logOpening(let lane, let outcome): "log: the circuit of lane \(lane) has opened: \(outcome)"
    default: nil
    }
  }
}
