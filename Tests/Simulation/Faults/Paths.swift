// The paths from each replica to each provider: most work, some fail in one way for a while, and heal at any moment.
//
// Only some seeds have ill paths, and these have no other faults: then somebody can always ring, or nobody can, and it is known when.

import Providers
import Runtime

/// What is wrong with a path.
enum PathIllness {
  /// Requests get no answer.
  case silent
  /// The connection is lost with the request.
  case closing
  /// Our credentials are refused.
  case refusing
  /// A proxy, or a server that is ill, answers.
  case ill
  /// The provider asks for a pause, of this path alone.
  case throttling
  /// The provider does not want to see the push again for longer than it rings.
  case postponing
  /// So, too, because its token gets too many.
  case rationing
  /// Requests arrive, and their answers come late.
  case slow
  /// Our credentials are refused for every second token, and accepted for the others.
  case refusingSome
  /// The connection is lost with a push to every second token.
  case closingSome

  static func choices(_ seed: UInt64) -> [PathIllness] {
    if Paths.areChoosy(seed) { return [.refusingSome, .refusingSome, .closingSome, .postponing, .ill] }
    if Paths.areMixed(seed) { return [.postponing, .postponing, .rationing, .ill] }
    return Paths.areSlow(seed) ? [.slow, .slow, .slow, .silent] : [.silent, .closing, .refusing, .ill, .throttling]
  }
}

/// The ill paths of a seed.
struct Paths {
  /// How long a path asks not to be used.
  static let pause = Nanoseconds.seconds(4)
  /// How long it does not want to see a push.
  static let longPause = Nanoseconds.seconds(60)
  /// How long a replica does not send to a token again for which alone its path fails, at most.
  static let rest = Nanoseconds.seconds(5)
  private static let passing: [PathIllness] = [.ill, .closing]

  struct Path: Hashable {
    var replica: Int
    var lane: Int
  }

  private struct Turn: Hashable {
    var path: Path
    var token: [UInt8]
  }

  private struct Span {
    var from, until: VirtualTime
    var illness: PathIllness
  }

  private var spans: [Path: [Span]] = [:]
  private let replicas: Int
  /// Tokens whose first push over a path that works is gone.
  private var tried: Set<Turn> = []
  private let isMixed: Bool
  private var random: SplitMix64

  /// Whether a seed has ill paths.
  static func areIll(_ seed: UInt64) -> Bool { seed % 4 == 0 }

  /// Whether most of its ill paths are slow.
  static func areSlow(_ seed: UInt64) -> Bool { seed % 16 == 4 }

  /// Whether ill paths ask for long waits, and those that work fail once at some tokens.
  static func areMixed(_ seed: UInt64) -> Bool { seed % 16 == 8 }

  /// Whether some of these fail for every second token, and work for the others.
  static func areChoosy(_ seed: UInt64) -> Bool { seed % 64 == 40 }

  /// Whether two replicas at a time share their paths and tell each other what they learn of them, like the dispatchers of two databases
  /// in one process.
  static func areShared(_ seed: UInt64) -> Bool { seed % 32 == 12 || seed % 64 == 20 }

  /// The path of a replica.
  static func path(_ seed: UInt64, replica: Int, lane: Int) -> Path {
    Path(replica: areShared(seed) ? replica / 2 : replica, lane: lane)
  }

  init(_ seed: UInt64, replicas: Int, lanes: Int, until end: VirtualTime) {
    let replicas = Self.areShared(seed) ? (replicas + 1) / 2 : replicas
    self.replicas = replicas
    // Draws of their own, so that other seeds stay as they are.
    random = SplitMix64(seed: seed &* 0x9E37_79B9_7F4A_7C15)
    isMixed = Self.areMixed(seed)
    guard Self.areIll(seed) else { return }
    for replica in 0..<replicas {
      for lane in 0..<lanes where random.chance(0.5) {
        var from = random.time(0...4_000)
        while from < end {
          let until = from + random.time(500...12_000)
          let illness = random.pick(PathIllness.choices(seed)) ?? .silent
          spans[Path(replica: replica, lane: lane), default: []].append(
            Span(from: from, until: until, illness: illness))
          from = until + random.time(500...8_000)
        }
      }
    }
  }

  /// What is wrong now for a token; nil if nothing is.
  func illness(of path: Path, for token: [UInt8], at now: VirtualTime) -> PathIllness? {
    let isChosen = token.reduce(0, ^) & 1 == 1
    return switch spans[path]?.first(where: { $0.from <= now && now < $0.until })?.illness {
    case .refusingSome?: isChosen ? .refusing : nil
    case .closingSome?: isChosen ? .closing : nil
    case let illness: illness
    }
  }

  /// What happens to a push on its way over a path that works.
  mutating func passingFailure(of token: [UInt8], over path: Path) -> PathIllness? {
    guard isMixed, tried.insert(Turn(path: path, token: token)).inserted, random.chance(0.4) else { return nil }
    return random.pick(Self.passing)
  }

  /// Whether nothing was wrong since then.
  func hasWorked(_ path: Path, since start: VirtualTime, at now: VirtualTime) -> Bool {
    !spans[path, default: []].contains { $0.from <= now && start < $0.until }
  }

  /// The first time, not before `start`, from which the path of some replica works for so long.
  func works(lane: Int, from start: VirtualTime, for time: VirtualTime) -> VirtualTime {
    (0..<replicas).map { replica in
      var from = start
      for span in spans[Path(replica: replica, lane: lane), default: []] {
        // A pause that was asked for is not over before.
        let wait: Nanoseconds =
          switch span.illness {
          case .throttling: Self.pause
          case .postponing, .rationing: Self.longPause
          case .refusingSome, .closingSome: Self.rest
          default: .zero
          }
        let until = span.until + wait.count
        if span.from < from + time, from < until { from = until }
      }
      return from
    }.min() ?? start
  }
}
