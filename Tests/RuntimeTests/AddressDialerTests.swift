// Tests of connecting to a host some of whose addresses are dead.

import HTTP2TestSupport
import TestTime
import Testing

@testable import Runtime

@Suite(.timeLimit(.minutes(10))) struct AddressDialerTests {
  @Test func `a connection is made despite eight dead addresses, which are remembered`() async throws {
    let server = try HTTP2TestServer { $0.respond(200) }
    guard let dead = DeadAddresses(8, port: server.port) else {
      print("skipped: this system has no addresses that drop a SYN")
      return
    }
    let book = AddressBook()
    let hosts = dead.hosts + ["127.0.0.1"]
    let resolver = NameResolver { _ in
      .success(hosts.map { SocketAddress(numericHost: $0, port: 0)! })
    }
    // The pauses between the attempts are two seconds in all (AddressRaceTests); with the system's timeout they would be minutes.
    let first = try await time(server, resolver, book)
    #expect(first < .seconds(20), "\(first.milliseconds) ms")
    // The remembered one comes first: no pause at all.
    let second = try await time(server, resolver, book)
    #expect(second < .milliseconds(1_900), "\(second.milliseconds) ms")
    withExtendedLifetime(dead) {}
  }

  /// The time to connect, by a clock that a busy machine slows down.
  private func time(
    _ server: HTTP2TestServer, _ resolver: NameResolver, _ book: AddressBook
  ) async throws -> Nanoseconds {
    let context = try TestCertificates.shared.client()
    let loop = EventLoop.paced("dialer-test", with: [server.loop])
    defer { loop.stop() }
    let start = loop.now
    try await dial(server.port, resolver, book, context, on: loop).get()
    return loop.now - start
  }

  private func dial(
    _ port: UInt16, _ resolver: NameResolver, _ book: AddressBook, _ context: TLSContext, on loop: EventLoop
  ) async -> Result<Void, TLSError> {
    final class Keeper { var dialer: AddressDialer? }
    return await withCheckedContinuation { continuation in
      loop.execute {
        let keeper = Keeper()
        keeper.dialer = AddressDialer(
          host: "localhost", port: port, context: context, loop: loop, resolver: resolver, book: book
        ) { result in
          keeper.dialer = nil
          if case .success(let dialed) = result, case .tls(let stream) = dialed.link { stream.close() }
          continuation.resume(returning: result.map { _ in })
        }
        keeper.dialer?.start()
      }
    }
  }
}
