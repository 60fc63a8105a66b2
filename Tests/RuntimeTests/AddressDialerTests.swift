// Tests of connecting to a host some of whose addresses are dead.

import HTTP2TestSupport
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
    // The pauses between the attempts are two seconds in all; with the system's timeout they would be minutes.
    let first = try await time(server, resolver, book)
    #expect(first.time > .milliseconds(1950) && first.time - first.lateness < .seconds(20), "\(first)")
    // The remembered one comes first: no pause at all.
    let second = try await time(server, resolver, book)
    #expect(second.time - second.lateness < .milliseconds(1900), "\(second)")
    withExtendedLifetime(dead) {}
  }

  /// The time to connect, and the delay of the machine.
  private func time(
    _ server: HTTP2TestServer, _ resolver: NameResolver, _ book: AddressBook
  ) async throws -> (time: Nanoseconds, lateness: Nanoseconds) {
    let context = try TestCertificates.shared.client()
    let loop = EventLoop(name: "dialer-test")
    defer { loop.stop() }
    let dialing = await LoopLateness.time(on: [loop, server.loop]) {
      await dial(server.port, resolver, book, context, on: loop)
    }
    try dialing.result.get()
    return (dialing.time, dialing.lateness)
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
