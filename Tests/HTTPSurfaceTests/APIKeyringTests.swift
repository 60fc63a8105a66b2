// The keyring without a server: keys are trusted for a moment, and guessers lock nobody out.

import HTTPSurfaceTestSupport
import Runtime
import Synchronization
import TestTime
import Testing

@testable import HTTPSurface
@testable import Settings

@Suite(.timeLimit(.minutes(10))) struct APIKeyringTests {
  /// Stands for the database, and counts queries.
  private final class KeyTable: Sendable {
    let keys = Mutex<[Int32: KnownAPIKey]>([:])
    let questions = Mutex(0)
    let lists = Mutex(0)

    var source: APIKeyring.Source {
      APIKeyring.Source(
        find: { [self] id in
          questions.withLock { $0 += 1 }
          return keys.withLock { $0[id] }
        },
        list: { [self] countMax in
          lists.withLock { $0 += 1 }
          return keys.withLock { $0.filter { $0.value.state == .good && $0.key <= countMax } }
        })
    }

    /// Creates a good key, and returns its text.
    func make(_ id: Int32, addresses: [IPRange]? = nil) -> String {
      let text = APIKeyringTests.text(id)
      let hash = APIKey(authorization: text)?.hash ?? []
      keys.withLock { $0[id] = KnownAPIKey(app: "a", scopes: ["read"], hash: hash, addresses: addresses) }
      return text
    }
  }

  private static func text(_ id: Int32, _ secret: Character = "s") -> String {
    "Bearer pgk_\(id)_" + String(repeating: secret, count: 32)
  }

  private static let home = IPAddress("192.0.2.1")!
  private static let guesser = IPAddress("203.0.113.66")!

  private let clock = ManualClock()
  private let table = KeyTable()
  private let ring: APIKeyring

  init() {
    ring = APIKeyring(clock: clock, source: table.source)
  }

  /// Why a key is refused; nil if it is not.
  private func refusal(
    _ text: String?, from peer: IPAddress = home
  ) async -> APIRefusal.Reason? {
    do throws(APIProblem) {
      _ = try await ring.client(authorization: text, scope: .read, peer: peer)
      return nil
    } catch {
      return error.refusal?.reason
    }
  }

  @Test func `the state of a key is trusted for two seconds`() async throws {
    #expect(await refusal(Self.text(7)) == .unknownKey)
    let text = table.make(7)
    #expect(await refusal(text) == .unknownKey)
    clock.advance(.seconds(2))
    #expect(
      try await ring.client(authorization: text, scope: .read, peer: Self.home) == APIClient(keyID: 7, app: "a"))
    table.keys.withLock { $0[7] = nil }
    clock.advance(.milliseconds(1_999))
    #expect(await refusal(text) == nil)
    clock.advance(.milliseconds(1))
    #expect(await refusal(text) == .unknownKey)
    #expect(table.questions.withLock { $0 } == 3)
  }

  @Test func `each refusal has its reason, and the right secret is told whether the key expired or was revoked`()
    async throws
  {
    let text = table.make(1)
    #expect(await refusal(nil) == .noKey)
    #expect(await refusal("Bearer nonsense") == .unknownKey)
    #expect(await refusal(Self.text(1, "t")) == .wrongSecret)
    for (state, reason, word) in [
      (KnownAPIKey.State.expired, APIRefusal.Reason.expired, "expired"), (.revoked, .revoked, "revoked"),
    ] {
      table.keys.withLock { $0[1]?.state = state }
      clock.advance(.seconds(2))
      do throws(APIProblem) {
        _ = try await ring.client(authorization: text, scope: .read, peer: Self.home)
        Issue.record("it is \(word)")
      } catch {
        #expect(error.name == "unauthorized" && error.detail.contains(word))
        #expect(error.refusal == APIRefusal(reason: reason, keyID: 1))
      }
      #expect(await refusal(Self.text(1, "t")) == .wrongSecret)
    }
  }

  @Test func `a key limited to networks is refused from elsewhere`() async throws {
    let text = table.make(1, addresses: [IPRange("192.0.2.0/24")!, IPRange("2001:db8::/32")!])
    for peer in ["192.0.2.200", "2001:db8:1::5", "::ffff:192.0.2.9"] {
      #expect(await refusal(text, from: IPAddress(peer)!) == nil, "\(peer)")
    }
    for peer in ["192.0.3.1", "2001:db9::1", "::192.0.2.1"] {
      #expect(await refusal(text, from: IPAddress(peer)!) == .address, "\(peer)")
    }
    #expect(await refusal(text, from: .unknown) == .address)
    // A client without the secret is not told about the networks.
    #expect(await refusal(Self.text(1, "t"), from: IPAddress("192.0.3.1")!) == .wrongSecret)
    let nowhere = table.make(2, addresses: [])
    #expect(await refusal(nowhere) == .address)
  }

  // MARK: - Guessing

  /// A thousand different key numbers a second for ten seconds, from a number of addresses.
  private func flood(seconds: Int64 = 10, peers: UInt64 = 1, _ each: () async -> Void = {}) async {
    var id: Int32 = 1_000_000
    for _ in 0..<seconds {
      for index in 0..<1_000 {
        id += 1
        let peer = IPAddress(high: 0, low: Self.guesser.low + UInt64(index) % peers, isIPv6: false)
        _ = await refusal(Self.text(id), from: peer)
      }
      await each()
      clock.advance(.seconds(1))
    }
  }

  @Test(arguments: [1, 1_000] as [UInt64])
  func `a flood of guesses from one address or a thousand locks out no key that was used`(_ peers: UInt64) async {
    let text = table.make(1)
    #expect(await refusal(text) == nil)
    // The key is not shown for longer than it is trusted, while all tables fill up.
    await flood(seconds: 30, peers: peers)
    for peer in [Self.home, Self.guesser] {
      // The key must be looked up again, and no limit has a token left.
      clock.advance(.seconds(2))
      for id in 2_000_000..<2_002_000 as Range<Int32> {
        let peer = IPAddress(high: 0, low: Self.guesser.low + UInt64(id) % peers, isIPv6: false)
        _ = await refusal(Self.text(id), from: peer)
      }
      #expect(await refusal(text, from: peer) == nil, "from \(peer)")
    }
    #expect(table.questions.withLock { $0 } <= 35 * APIKeyring.unknownKeyQueriesPerSecond)
  }

  @Test func `during a flood, a key that was never used here is refused for at most a moment`() async {
    let text = table.make(5)
    var refused = 0
    await flood(peers: 1_000) {
      while await refusal(text) != nil {
        refused += 1
        guard refused < 1_000 else { return }
        // The list of good keys is read meanwhile. That takes none of the clock's time.
        await Task.yield()
      }
    }
    #expect(refused < 1_000)
    #expect(await refusal(text) == nil)
    #expect(table.lists.withLock { $0 } <= 6)
  }

  @Test func `the guesser gets 429 for every key, and a neighbouring address does not`() async {
    let text = table.make(1)
    #expect(await refusal(text) == nil)
    var reasons: [APIRefusal.Reason?: Int] = [:]
    for _ in 0..<1_000 { reasons[await refusal(Self.text(1, "t"), from: Self.guesser), default: 0] += 1 }
    #expect(reasons == [.wrongSecret: Int(APIGuesses.savedMax), .guessing: 1_000 - Int(APIGuesses.savedMax)])
    #expect(await refusal(Self.text(2), from: Self.guesser) == .guessing)
    #expect(await refusal("Bearer nonsense", from: Self.guesser) == .guessing)
    #expect(await refusal(text, from: Self.guesser) == nil)
    #expect(await refusal(Self.text(1, "t")) == .wrongSecret)
    clock.advance(.seconds(1))
    reasons = [:]
    for _ in 0..<100 { reasons[await refusal(Self.text(1, "t"), from: Self.guesser), default: 0] += 1 }
    #expect(reasons[.wrongSecret] == Int(APIGuesses.perSecond))
  }

  @Test func `an IPv6 guesser is identified by its network, not by its address`() {
    var guesses = APIGuesses()
    let now = Instant(nanoseconds: 0)
    func allow(_ peer: IPAddress) -> Bool { guesses.allow(peer, now) }
    func hasAny(_ peer: IPAddress) -> Bool { guesses.hasAny(peer, now) }
    let network = IPAddress("2001:db8:0:1::")!
    for index in 0..<UInt64(APIGuesses.savedMax) {
      #expect(allow(IPAddress(high: network.high, low: index << 32, isIPv6: true)))
    }
    #expect(!hasAny(IPAddress("2001:db8:0:1::ffff")!))
    #expect(hasAny(IPAddress("2001:db8:0:2::ffff")!))
  }

  @Test func `the table of guessers is limited, and further guessers share one limit`() {
    var guesses = APIGuesses()
    var now = Instant(nanoseconds: 0)
    func allow(_ peer: IPAddress) -> Bool { guesses.allow(peer, now) }
    func hasAny(_ peer: IPAddress) -> Bool { guesses.hasAny(peer, now) }
    func peer(_ number: Int) -> IPAddress { IPAddress(high: 0, low: UInt64(number), isIPv6: false) }
    for number in 0..<APIGuesses.peersMax { #expect(allow(peer(number))) }
    var taken = 0
    for number in 0..<10_000 where allow(peer(1_000_000 + number)) { taken += 1 }
    #expect(taken == Int(APIGuesses.savedMax))
    #expect(allow(peer(0)))
    // Peers whose buckets are full again are removed.
    now = now + .seconds(2)
    #expect(allow(peer(2_000_000)))
    #expect(hasAny(peer(3_000_000)))
  }

  @Test func `simultaneous look-ups of one key are one query`() async throws {
    let (gate, opened) = AsyncStream.makeStream(of: Void.self)
    let asked = Mutex(0)
    let text = table.make(1)
    let ring = APIKeyring(
      clock: clock,
      source: APIKeyring.Source(find: { [table] id in
        asked.withLock { $0 += 1 }
        for await _ in gate { break }
        return table.keys.withLock { $0[id] }
      }))
    let apps = await withTaskGroup(of: String?.self) { group in
      for _ in 0..<50 {
        group.addTask { try? await ring.client(authorization: text, scope: .read, peer: Self.home).app }
      }
      while asked.withLock({ $0 }) == 0 { await Task.yield() }
      opened.yield()
      opened.finish()
      return await group.reduce(into: [String?]()) { $0.append($1) }
    }
    #expect(apps == [String?](repeating: "a", count: 50))
    #expect(asked.withLock { $0 } == 1)
  }

  // MARK: - Uses

  @Test func `the last use of each key is written once a minute, and every use when the gateway stops`() {
    let uses = APIKeyUses(clock: clock)
    uses.note(1, from: Self.guesser)
    clock.advance(.seconds(3))
    uses.note(1, from: Self.home)
    uses.note(2, from: .unknown)
    clock.advance(.milliseconds(1_500))
    #expect(uses.drain() == .init(ids: [1, 2], ages: [1_500, 1_500], peers: ["192.0.2.1", nil]))
    uses.note(1, from: Self.home)
    uses.note(3, from: Self.home)
    clock.advance(.seconds(59))
    #expect(uses.drain() == .init(ids: [3], ages: [59_000], peers: ["192.0.2.1"]))
    clock.advance(.seconds(1))
    #expect(uses.drain() == .init(ids: [1], ages: [60_000], peers: ["192.0.2.1"]))
    uses.note(1, from: Self.home)
    #expect(uses.drain() == .init())
    #expect(uses.drain(all: true) == .init(ids: [1], ages: [0], peers: ["192.0.2.1"]))
  }
}
