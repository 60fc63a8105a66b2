// Lost packets, in a network namespace of its own: `make test-hostile`.

import Foundation
import HTTP2TestSupport
import Runtime
import Simulators
import TestTime
import Testing

@Suite(
  "Hostile network", .serialized, .timeLimit(.minutes(10)),
  .enabled(if: ProcessInfo.processInfo.environment["PUSH_GATEWAY_HOSTILE_NETWORK"] == "1"))
struct HostileNetworkTests {
  /// Which packets are lost on a connection that was idle.
  private enum Loss: String, CaseIterable {
    case bothWays, requests, answers, network

    private var text: String {
      switch self {
      case .bothWays: "packets of an idle connection are lost both ways"
      case .requests: "packets of an idle connection to the provider are lost"
      case .answers: "packets of an idle connection from the provider are lost"
      case .network: "all packets to and from the provider are lost for 3 s"
      }
    }

    var behaviour: HostileBehaviour {
      let bound = self == .network ? 9.0 : 2.5
      let requests = self == .answers || self == .network ? 2 : 1
      return HostileBehaviour(
        text, self == .network ? "rings when the network is back" : "rings over another connection",
        .rings(bound, attempts: 1...(self == .network ? 4 : 2), requestsMax: requests)
      ) { _ in }
    }

    func ports(_ client: UInt16, _ server: UInt16) -> String {
      switch self {
      case .bothWays: "\(client)"
      case .requests: ">\(client)"
      case .answers: "<\(client)"
      case .network: "\(server)"
      }
    }
  }

  /// Seconds between the call that opened the connection and the tested one.
  private static var idleSeconds: Double {
    ProcessInfo.processInfo.environment["PUSH_GATEWAY_HOSTILE_IDLE_SECONDS"].flatMap(Double.init) ?? 6
  }

  @Test("a single call over a connection whose packets are lost rings within 2.5 s")
  func lostPackets() async throws {
    let mirror = try PacketMirror()
    let pairs = Loss.allCases.flatMap { loss in ScriptedPeer.Provider.allCases.map { (loss, $0) } }
    // Each app has three lanes.
    let names = Loss.allCases.indices.flatMap { number in ScriptedPeer.Provider.allCases.map { _ in "app-\(number)" } }
    let loop = EventLoop(name: "hostile-peers")
    defer { loop.stop() }
    try await HostileGateway.with(host: PacketMirror.host) { material in
      let contexts = try ScriptedPeer.Contexts(
        certificateFile: material.certificateFile, keyFile: material.certificateKeyFile)
      return try zip(names, pairs).map { name, pair in
        (name, try ScriptedPeer(pair.1, contexts, address: PacketMirror.peerAddress, loop: loop))
      }
    } _: { gateway, apps in
      let lanes = zip(pairs, apps).map { HostileLane(behaviour: $0.0.behaviour, app: $1.app, peer: $1.peer) }
      try await gateway.callNeighbour("first")
      try await gateway.warmUp(lanes, "warm")
      try await letPass(.seconds(Self.idleSeconds), "the connections are idle")

      var ports: [String] = []
      for ((loss, _), (_, peer)) in zip(pairs, apps) {
        let clients = await peer.perform { peer in
          peer.arm(PeerScript(), .always)
          return peer.clientPorts
        }
        ports += clients.map { loss.ports($0, peer.port) }
      }
      mirror.drop(ports)
      let (calls, neighbour) = try await gateway.besideNeighbour("beside", every: .milliseconds(100)) {
        try await gateway.call("lone", lanes)
        try await letPass(.seconds(3), "the network is away")
        let servers = Set(zip(pairs, apps).filter { $0.0.0 == .network }.map { "\($0.1.peer.port)" })
        mirror.drop(ports.filter { !servers.contains($0) })
        try await gateway.waitForEnds(of: "lone", apps.count)
      }
      #expect(mirror.drop([]) > 0)
      #expect(neighbour.count == 3 * calls)
      #expect(neighbour.troubled == "")
      try await gateway.check("lone", lanes)
    }
  }
}
