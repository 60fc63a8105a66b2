// Performs the actions of an `AddressRace` in order.

/// Runs a race: takes events, and passes actions to the owner of the connections. Confined to its event loop.
public final class AddressRaceRunner {
  private var race: AddressRace
  private let perform: (AddressRace.Action) -> Void
  private var actions: [AddressRace.Action] = []
  private var isPerforming = false

  /// - Parameter perform: performs an action. It may report the next event at once.
  public init(count: Int, settings: AddressRace.Settings, perform: @escaping (AddressRace.Action) -> Void) {
    race = AddressRace(count: count, settings: settings)
    self.perform = perform
  }

  public func handle(_ event: AddressRace.Event, now: Instant) {
    race.handle(event, now: now, &actions)
    // If an action caused the event, the event's actions come after the actions before it.
    guard !isPerforming else { return }
    isPerforming = true
    var next = 0
    while next < actions.count {
      perform(actions[next])
      next += 1
    }
    actions.removeAll(keepingCapacity: true)
    isPerforming = false
  }
}
