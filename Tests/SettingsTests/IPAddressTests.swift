// Addresses, networks, and the client's address behind trusted proxies.

import Testing

@testable import Settings

struct IPAddressTests {
  @Test(arguments: [
    ("192.0.2.1", "192.0.2.1"), ("0.0.0.0", "0.0.0.0"), ("2001:DB8:0:0::1", "2001:db8::1"), ("::", "::"),
    ("::ffff:192.0.2.1", "192.0.2.1"), ("::ffff:c000:201", "192.0.2.1"), ("::192.0.2.1", "::192.0.2.1"),
  ])
  func `an address has one value in every notation`(_ text: String, _ written: String) {
    #expect(IPAddress(text)?.description == written)
  }

  @Test(arguments: [
    "", " 192.0.2.1", "192.0.2", "192.0.2.256", "192.0.2.1.1", "localhost", "192.0.2.1:80", "[::1]", "::1%eth0",
    "192.0.2.1\0", "192.0.2.01", "0x7f.1", "unknown", "_hidden",
  ])
  func `an invalid address is refused`(_ text: String) {
    #expect(IPAddress(text) == nil)
  }

  @Test(arguments: [
    ("10.1.2.3/8", "10.0.0.0/8", "10.255.0.1", "11.0.0.1"), ("10.1.2.3", "10.1.2.3", "10.1.2.3", "10.1.2.2"),
    ("10.1.2.3/31", "10.1.2.2/31", "10.1.2.3", "10.1.2.4"),
    ("2001:db8::/33", "2001:db8::/33", "2001:db8::1", "2001:db8:8000::1"),
    ("2001:db8::1/128", "2001:db8::1", "2001:db8::1", "2001:db8::2"), ("fd00::/8", "fd00::/8", "fd12::1", "fe00::1"),
    ("2001:db8::/65", "2001:db8::/65", "2001:db8::7fff:0:0:1", "2001:db8::8000:0:0:1"),
    ("::ffff:10.0.0.0/104", "10.0.0.0/8", "10.3.2.1", "::10.3.2.1"), ("0.0.0.0/0", "0.0.0.0/0", "203.0.113.1", "::1"),
  ])
  func `a network contains its own addresses and no others`(
    _ text: String, _ written: String, _ inside: String, _ outside: String
  )
    throws
  {
    let range = try #require(IPRange(text))
    #expect(range.description == written)
    #expect(range.contains(try #require(IPAddress(inside))))
    #expect(!range.contains(try #require(IPAddress(outside))))
  }

  @Test(arguments: [
    "", "/", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8", "::/129", "10.0.0.0/8/8",
    "::ffff:10.0.0.0/95",
  ])
  func `an invalid network is refused`(_ text: String) {
    #expect(IPRange(text) == nil)
  }

  @Test(
    arguments: [
      // No header, or one from an untrusted address.
      ("10.0.0.1", nil, "10.0.0.1"), ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
      ("203.0.113.9", "10.0.0.5", "203.0.113.9"),
      // One proxy, two proxies, and entries that the client has made up.
      ("10.0.0.1", "203.0.113.9", "203.0.113.9"), ("10.0.0.1", "203.0.113.9, 10.0.0.2", "203.0.113.9"),
      ("10.0.0.1", "198.51.100.1, 203.0.113.9", "203.0.113.9"),
      ("10.0.0.1", "10.0.0.7, 203.0.113.9,10.0.0.2", "203.0.113.9"),
      ("10.0.0.1", "192.0.2.1,garbage, 203.0.113.9", "203.0.113.9"),
      // Every address is a proxy's: the left-most is the client.
      ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
      // The search stops at an entry that is not an address.
      ("10.0.0.1", "203.0.113.9, unknown", "10.0.0.1"), ("10.0.0.1", "203.0.113.9, unknown, 10.0.0.2", "10.0.0.2"),
      ("10.0.0.1", "", "10.0.0.1"), ("10.0.0.1", "203.0.113.9,", "10.0.0.1"), ("10.0.0.1", ",,,", "10.0.0.1"),
      // The notations that proxies use.
      ("10.0.0.1", " 203.0.113.9:4711 ", "203.0.113.9"), ("10.0.0.1", "[2001:db8::9]:443", "2001:db8::9"),
      ("10.0.0.1", "2001:db8::9", "2001:db8::9"), ("10.0.0.1", "[2001:db8::9]", "2001:db8::9"),
      ("fd00::1", "::ffff:203.0.113.9", "203.0.113.9"), ("::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9"),
    ] as [(String, String?, String)])
  func `the right-most address that is not a trusted proxy's is the client's`(
    _ connection: String, _ header: String?, _ client: String
  ) throws {
    let proxies = TrustedProxies([try #require(IPRange("10.0.0.0/8")), try #require(IPRange("fd00::/8"))])
    #expect(
      proxies.client(of: try #require(IPAddress(connection)), forwardedFor: header) == IPAddress(client),
      "\(header ?? "nothing")")
    #expect(
      TrustedProxies([]).client(of: try #require(IPAddress(connection)), forwardedFor: header)
        == IPAddress(connection))
  }
}
