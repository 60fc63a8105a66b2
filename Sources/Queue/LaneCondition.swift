// What a replica says of its lanes, for ops to read in push.lanes.

public import Runtime

/// How one lane is at the moment, at one replica.
public struct LaneCondition: Sendable, Equatable {
  /// `push.lane.id`.
  public var lane: Int16
  /// The most deliveries it may hold.
  public var window: Int
  /// How many its provider could hold now; 0 while no connection is usable.
  public var capacity: Int
  /// How many it holds.
  public var inFlight: Int
  public var circuit: LaneCircuit.State
  /// How long it sends nothing at least; zero: it sends.
  public var wait: Nanoseconds
  /// Requests since the condition before, over the time that passed.
  public var perSecond: Int

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
