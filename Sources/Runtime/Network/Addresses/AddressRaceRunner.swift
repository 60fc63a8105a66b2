// Carries out what an `AddressRace` decides, in the order it decides it.

/// A race that is run: events in, actions to whoever opens the connections. Confined to its event loop.
public final class AddressRaceRunner {
  private var race: AddressRace
  private let perform: (AddressRace.Action) -> Void
  private var actions: [AddressRace.Action] = []
  private var isPerforming = false

  /// - Parameter perform: may hand in the next event at once.
  public init(count: Int, settings: AddressRace.Settings, perform: @escaping (AddressRace.Action) -> Void) {
    race = AddressRace(count: count, settings: settings)
    self.perform = perform
  }

  public func handle(_ event: AddressRace.Event, now: Instant) {
    race.handle(event, now: now, &actions)
    // If an action brought the event about, its own actions come after those before it.
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
