// Which database a shared token comes from.

import Logging
import Queue
import Runtime
import Testing

@testable import Gateway

@Suite("Stores of tokens", .timeLimit(.minutes(10))) struct TokenStoresTests {
  private static func with(_ body: (TokenStores, _ north: PostgresOutbox) async throws -> Void) async throws {
    let loop = EventLoop(name: "token stores")
    defer { loop.stop() }
    // They do not connect: nothing is asked of them.
    func outbox(_ name: String) -> PostgresOutbox {
      PostgresOutbox(
        options: .init(url: "postgres://127.0.0.1:1/\(name)", name: name, version: "1"), loop: loop,
        logger: Logger(label: "test"))
    }
    let stores = TokenStores()
    let north = outbox("north")
    stores.add(outbox("south"), database: "south", number: 1)
    stores.add(north, database: "north", number: 2)
    try await body(stores, north)
  }

  @Test("a database that does not answer holds up no token: the next one is asked")
  func silent() async throws {
    try await Self.with { stores, north in
      let (never, end) = AsyncStream<Void>.makeStream()
      let answer = try await stores.ask { outbox throws(OutboxError) in
        guard outbox === north else { return "south" }
        for await _ in never {}
        return "north"
      }
      #expect(answer == "south")
      end.finish()
    }
  }

  @Test("the first database is asked first, the next one when it fails, and if all fail, the last error is told")
  func failing() async throws {
    try await Self.with { stores, north in
      func ask(failing: Bool...) async -> String {
        do throws(OutboxError) {
          return try await stores.ask { outbox throws(OutboxError) in
            let name = outbox === north ? "north" : "south"
            if failing[outbox === north ? 0 : 1] { throw OutboxError(.unavailable, "\(name) is away") }
            return name
          }
        } catch {
          return error.description
        }
      }
      let answers = [
        await ask(failing: false, false), await ask(failing: true, false), await ask(failing: true, true),
      ]
      #expect(answers == ["north", "south", "south is away"])
      stores.remove(number: 1)
      stores.remove(number: 2)
      let nobody = await ask(failing: false, false)
      #expect(nobody == "no database is served yet")
    }
  }
}
