// Checks that a dispatcher machine keeps its limits, from its events and actions alone.

import Dispatching
import Queue

/// The pending statements and requests of one life of a replica.
struct LimitChecker {
  private static let batchMax = 1_000
  /// Batches of one kind.
  private static let batchesMax = 24

  private var claim: (number: Int32, allowances: [LaneAllowance], limits: ClaimLimits)?
  private var lastNumber: Int32 = .min
  private var batches = 0
  private var lookUps = 0
  private var followUps: Set<JobKind> = []

  mutating func willDo(_ action: DispatcherAction, _ life: Life, _ world: World, violate: (String, String) -> Void) {
    switch action {
    case .register: lastNumber = .min
    case .claim(let number, let allowances, let limits):
      if claim != nil { violate("At most one claim is under way.", "claim \(number)") }
      if number <= lastNumber { violate("Every claim has a higher number than the one before.", "claim \(number)") }
      lastNumber = max(lastNumber, number)
      claim = (number, allowances, limits)
      for allowance in allowances {
        guard let lane = world.lanes.firstIndex(where: { $0.id == allowance.lane }) else { continue }
        let held = life.providers[lane].unanswered
        if held + Int(allowance.limit) > world.plan.window {
          violate(
            "A lane holds at most its window.",
            "lane \(allowance.lane) has \(held), claims up to \(allowance.limit) more")
        }
      }
    case .write(_, let write):
      batches += 1
      if batches > Self.batchesMax { violate("At most 24 batches are under way.", "\(batches) batches") }
      if write.count > Self.batchMax { violate("A batch has at most 1,000 rows.", "\(write.count) rows") }
    case .followUp(let kind, _):
      if !followUps.insert(kind).inserted {
        violate("At most one run of follow-ups of a kind is under way.", "\(kind)")
      }
    case .lookUpEnded:
      lookUps += 1
      if lookUps > 1 { violate("At most one look-up of ended calls is under way.", "\(lookUps) look-ups") }
    default: break
    }
  }

  mutating func willHear(_ event: DispatcherEvent, violate: (String, String) -> Void) {
    switch event {
    case .claimed(let number, let result):
      guard let asked = claim, asked.number == number else {
        return violate("An answer belongs to the claim under way.", "claim \(number)")
      }
      claim = nil
      guard case .success(let claimed) = result else { return }
      for allowance in asked.allowances {
        let count = claimed.deliveries.count { $0.lane == allowance.lane }
        if count > Int(allowance.limit) { violate("A claim keeps its limits.", "lane \(allowance.lane): \(count)") }
      }
    case .written: batches -= 1
    case .endedFound: lookUps -= 1
    case .followedUp(let kind, _): followUps.remove(kind)
    default: break
    }
  }
}

extension OutboxWrite {
  fileprivate var count: Int {
    switch self {
    case .settle(let rows), .settledAmong(let rows): rows.count
    case .park(let rows): rows.count
    case .disown(let rows): rows.count
    case .invalidate(let rows): rows.count
    case .hold(let rows): rows.count
    case .correct(let rows): rows.count
    }
  }
}
