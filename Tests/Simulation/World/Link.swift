// A replica's four connections to the server, as `PostgresOutbox` has them: claims, settlements, maintenance and what it listens on.

import Dispatching
import MemoryOutbox
import Queue

/// The connections between a machine and the server.
final class Link {
  private unowned let life: Life
  private unowned let world: World
  private let claims: Connection
  private let settlements: Connection
  private let maintenance: Connection
  private let control: Connection
  /// The gateway of the statements.
  private(set) var gateway: Int32?
  private var isAvailable = false
  private var isListening = false
  /// How often the connection for maintenance had been opened when the first of the claims was sent that no sync covers.
  private var openingsAtClaim: Int?
  /// The server cannot be reached from here until this time.
  private var partitionedUntil: VirtualTime = 0

  init(_ life: Life, _ world: World) {
    self.life = life
    self.world = world
    claims = Connection("claims", life, world)
    settlements = Connection("settlements", life, world)
    maintenance = Connection("maintenance", life, world)
    control = Connection("control", life, world)
    for connection in [claims, settlements] { connection.onChange = { [unowned self] in workChanged() } }
    control.onChange = { [unowned self] in controlChanged() }
  }

  private var connections: [Connection] { [claims, settlements, maintenance, control] }

  func open() {
    for connection in connections where connection !== control || !world.plan.has(.noListener) {
      connection.reconnect()
    }
    guard world.plan.has(.lossyPath) else { return }
    // Large packets are lost: those of claimed rows, or of batches. They are not as late as to break the connection.
    if world.random.chance(0.5) {
      claims.losePackets(delay: 100...2_700, areAnswers: true)
    } else {
      settlements.losePackets(delay: 100...1_800, areAnswers: false)
    }
  }

  /// The process has ended.
  func abandon() { for connection in connections { connection.abandon() } }

  /// Whether statements reach the server.
  var isWell: Bool {
    isAvailable && claims.canHear && settlements.canHear && !isPartitioned && world.server.isResponsive
  }

  // MARK: - Statements

  /// Sends a statement; its answer becomes an event of the machine.
  func perform(_ action: DispatcherAction) {
    let isRegistering: Bool
    if case .register = action { isRegistering = true } else { isRegistering = false }
    let statement = Statement(
      action: action, gateway: isRegistering ? nil : gateway, name: life.name, askedAt: life.localNow)
    guard isAvailable, isRegistering || gateway != nil, !isVainSync(action) else {
      world.after(10_000) { [life, world] in
        life.whenRunning {
          let error = OutboxError(.unavailable, "the database cannot be reached at the moment")
          world.tell(life.name, "\(statement.story): unavailable")
          if let event = statement.event(.failure(error)) { life.handle(event) }
        }
      }
      return
    }
    let isClaim = statement.claimNumber != nil
    let connection = isClaim ? claims : statement.isMaintenance ? maintenance : settlements
    let openings = maintenance.openings
    connection.send(statement) { [unowned self] result in
      if isClaim, case .success = result { openingsAtClaim = min(openingsAtClaim ?? openings, openings) }
      if case .success(.registered(let gateway)) = result {
        self.gateway = gateway
        life.gateways.insert(gateway)
      }
      if case .failure(let error) = result { world.tell(life.name, "\(statement.story): \(error.code)") }
      if let event = statement.event(result) { life.handle(event) }
    }
  }

  /// A sync over a connection that is younger than a claim says nothing about it.
  private func isVainSync(_ action: DispatcherAction) -> Bool {
    guard case .sync = action else { return false }
    defer { openingsAtClaim = nil }
    return openingsAtClaim ?? maintenance.openings != maintenance.openings
  }

  /// Retires the gateway if the server can be reached. Then the process ends.
  func retire() {
    guard isAvailable, settlements.canHear, world.server.isResponsive, let gateway else { return }
    world.server.change { outbox, now in outbox.retire(gateway, at: now) }
  }

  // MARK: - Connections

  private func workChanged() {
    let isUp = claims.isUp && settlements.isUp
    guard isUp != isAvailable else { return }
    isAvailable = isUp
    life.handle(.outbox(isUp ? .available : .unavailable(reason: "the connection broke")))
    if isUp { life.handle(.outbox(.bell)) }
  }

  private func controlChanged() {
    guard control.isUp != isListening else { return }
    isListening = control.isUp
    life.handle(.outbox(.listening(isListening)))
    if isListening { life.handle(.outbox(.bell)) }
  }

  /// The server stopped or crashed: all connections end, and usually that is noticed at once.
  func serverIsGone() {
    for connection in connections {
      connection.breakOff(noticedAfter: world.random.latency(0...5, longest: 3_000))
    }
  }

  /// The server cannot be reached from here for a while.
  func partition(for time: VirtualTime) {
    partitionedUntil = max(partitionedUntil, world.now + time)
    world.tell(life.name, "is cut off for \(time / 1_000_000) ms")
    for connection in connections {
      connection.breakOff(noticedAfter: world.random.time(0...200))
    }
  }

  var isPartitioned: Bool { world.now < partitionedUntil }

  /// Faults stop.
  func recover() { partitionedUntil = 0 }

  /// One of the connections breaks and is noticed long after.
  func cutSilently() {
    guard let connection = world.random.pick(connections) else { return }
    connection.breakOff(noticedAfter: world.random.time(100...8_000))
  }

  /// The listening connection breaks.
  func deafen() { control.breakOff(noticedAfter: world.random.time(0...2_000)) }

  /// The server sends a notification.
  func hear(_ event: OutboxEvent, after time: VirtualTime) {
    guard control.canHear else { return }
    world.after(time) { [self] in
      guard control.canHear else { return }
      life.whenRunning { [self] in
        if isListening { life.handle(.outbox(event)) }
      }
    }
  }
}
