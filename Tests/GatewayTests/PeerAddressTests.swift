// Addresses, networks of them, and whom a proxy asks for.

import Testing

@testable import Gateway

@Suite struct PeerAddressTests {
  @Test func `an address is one however it is written`() throws {
    #expect(PeerAddress("10.0.0.7")?.description == "10.0.0.7")
    #expect(PeerAddress("::ffff:10.0.0.7") == PeerAddress("10.0.0.7"))
    #expect(PeerAddress("[2001:DB8::1]") == PeerAddress("2001:db8:0::1"))
    #expect(PeerAddress("fe80::1%eth0")?.description == "fe80::1")
    for text in ["", "10.0.0", "10.0.0.256", "host", "::g", "10.0.0.7:80"] {
      #expect(PeerAddress(text) == nil, "\(text)")
    }
  }

  @Test func `whoever has an address of IPv6 has all of its network`() throws {
    let one = try #require(PeerAddress("2001:db8:1:2::1"))
    #expect(one.neighbourhood == PeerAddress("2001:db8:1:2:ffff::9")?.neighbourhood)
    #expect(one.neighbourhood != PeerAddress("2001:db8:1:3::1")?.neighbourhood)
    #expect(PeerAddress("10.0.0.7")?.neighbourhood != PeerAddress("10.0.0.8")?.neighbourhood)
  }

  @Test(arguments: [
    ("10.0.0.0/8", "10.255.0.1", true), ("10.0.0.0/8", "11.0.0.1", false), ("10.0.0.7", "10.0.0.7", true),
    ("10.0.0.7", "10.0.0.8", false), ("0.0.0.0/0", "192.0.2.1", true), ("0.0.0.0/0", "2001:db8::1", false),
    ("fd00::/8", "fdff::1", true), ("fd00::/8", "fe00::1", false), ("2001:db8::/65", "2001:db8::1", true),
    ("2001:db8::/65", "2001:db8:0:0:8000::1", false), ("::1", "::1", true), ("::/0", "10.0.0.1", true),
    ("10.1.2.3/16", "10.1.9.9", true),
  ])
  func `a network has the addresses that begin as it does`(network: String, address: String, isIn: Bool) throws {
    #expect(try #require(PeerNetwork(network)).contains(try #require(PeerAddress(address))) == isIn)
  }

  @Test(arguments: ["10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/", "/8", "10.0.0.0/+8", "x/8"])
  func `what is no network is none`(text: String) { #expect(PeerNetwork(text) == nil) }

  @Test(arguments: [
    // Nobody but a proxy is believed.
    ("192.0.2.1", "198.51.100.9", "192.0.2.1"), ("10.0.0.1", nil, "10.0.0.1"),
    ("10.0.0.1", "198.51.100.9", "198.51.100.9"),
    // What the client wrote itself stands before what our proxies wrote.
    ("10.0.0.1", "203.0.113.1, 198.51.100.9", "198.51.100.9"), ("10.0.0.1", "198.51.100.9, 10.0.0.2", "198.51.100.9"),
    ("10.0.0.1", "x, 10.0.0.2", "10.0.0.2"), ("10.0.0.1", "198.51.100.9:4711", "198.51.100.9"),
    ("10.0.0.1", "[2001:db8::1]:4711", "2001:db8::1"),
  ])
  func `a proxy's word tells who asks`(peer: String, forwarded: String?, client: String) throws {
    let proxies = TrustedProxies(networks: [try #require(PeerNetwork("10.0.0.0/8"))])
    #expect(proxies.client(of: PeerAddress(peer), forwardedFor: forwarded) == PeerAddress(client))
  }
}
