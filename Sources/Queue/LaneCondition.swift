// What a replica reports of its lanes. Ops read it in push.lanes.

public import Runtime

/// The condition of one lane at one replica.
public struct LaneCondition: Sendable, Equatable {
  /// `push.lane.id`.
  public var lane: Int16
  /// Maximum number of deliveries it may hold.
  public var window: Int
  /// How many requests its provider could take now; 0 while no connection is usable.
  public var capacity: Int
  /// How many deliveries it holds.
  public var inFlight: Int
  public var circuit: LaneCircuit.State
  /// How long it sends nothing from now on, at least; zero if it sends.
  public var wait: Nanoseconds
  /// Requests a second since the last report.
  public var perSecond: Int
  /// Why the provider refuses the lane's credentials; nil if it does not.
  public var refusal: LaneRefusal?

  public init(
    lane: Int16, window: Int, capacity: Int, inFlight: Int, circuit: LaneCircuit.State, wait: Nanoseconds,
    perSecond: Int
  ) {
    self.lane = lane
    self.window = window
    self.capacity = capacity
    self.inFlight = inFlight
    self.circuit = circuit
    self.wait = wait
    self.perSecond = perSecond
  }
}

extension LaneCircuit.State {
  /// Every word of `word`.
  public static let words = ["closed", "half_open", "open"]

  /// The word that SQL, metrics and logs use.
  public var word: String {
    switch self {
    case .closed: "closed"
    case .open: "open"
    case .halfOpen: "half_open"
    }
  }
}
