// What a load is made of: arrivals, providers, faults, tokens.

import Foundation
import Queue
import Runtime
import Simulators
import Testing

@testable import Lab

@Suite struct LoadTestLoadTests {
  private static let run = "0badcafe"

  static func shape(
    kind: LoadKind = .incomingCall, devices: Int = 3, mix: String = "apns=1,fcm=1,expo=1", faults: String? = nil,
    seed: UInt64 = 1
  ) throws -> LoadShape {
    LoadShape(
      run: run, apps: ["porteiro"], kind: kind, ringSeconds: 60, devices: devices, mix: try LoadMix(mix),
      faults: try faults.map { try LoadFaults($0) } ?? .none, seed: seed)
  }

  // MARK: Arrivals

  private static func arrivals(seed: UInt64, rate: Double = 1_000, seconds: Int64 = 100) -> [Nanoseconds] {
    Array(ArrivalSchedule(rate: rate, duration: .seconds(seconds), seed: seed))
  }

  @Test func `arrivals are a Poisson process: as many as asked for, with exponential gaps`() {
    let times = Self.arrivals(seed: 4)
    #expect(abs(times.count - 100_000) < 1_500, "five standard deviations of √100000")
    #expect(times.allSatisfy { $0 >= .zero && $0 < .seconds(100) } && times == times.sorted())
    let gaps = zip(times.dropFirst(), times).map { ($0 - $1).seconds }
    let mean = gaps.reduce(0, +) / Double(gaps.count)
    let deviation = (gaps.reduce(0) { $0 + ($1 - mean) * ($1 - mean) } / Double(gaps.count)).squareRoot()
    #expect(abs(mean - 0.001) < 0.000_02)
    #expect(abs(deviation / mean - 1) < 0.03, "the deviation of an exponential distribution is its mean")
    #expect(abs(Double(gaps.count { $0 > 0.001 }) / Double(gaps.count) - exp(-1)) < 0.01)
  }

  @Test func `the same seed gives the same arrivals, another one others`() {
    #expect(Self.arrivals(seed: 9, seconds: 1) == Self.arrivals(seed: 9, seconds: 1))
    #expect(Self.arrivals(seed: 9, seconds: 1) != Self.arrivals(seed: 10, seconds: 1))
  }

  @Test func `each stage has its rate, and a gap may reach into the next one`() {
    let stages = [
      ArrivalStage(rate: 100, duration: .seconds(100)), ArrivalStage(rate: 0, duration: .seconds(50)),
      ArrivalStage(rate: 1_000, duration: .seconds(20)),
    ]
    let schedule = ArrivalSchedule(stages: stages, seed: 3)
    let times = Array(schedule)
    #expect(schedule.expectedCount == 30_000 && times == times.sorted())
    func count(_ from: Int64, _ to: Int64) -> Int { times.count { $0 >= .seconds(from) && $0 < .seconds(to) } }
    // Five standard deviations of a Poisson distribution.
    #expect(abs(count(0, 100) - 10_000) < 500 && abs(count(150, 170) - 20_000) < 708)
    #expect(count(100, 150) == 0 && times.allSatisfy { $0 < .seconds(170) })
    // Stages of the same rate are one.
    let half = ArrivalStage(rate: 50, duration: .seconds(30))
    let (two, one) = (
      Array(ArrivalSchedule(stages: [half, half], seed: 8)), Self.arrivals(seed: 8, rate: 50, seconds: 60)
    )
    #expect(two.count == one.count && zip(two, one).allSatisfy { abs($0.count - $1.count) < 1_000 })
  }

  @Test(
    arguments: [
      ("2m@50", ArrivalStage(rate: 50, duration: .seconds(120))),
      ("1h@0.5", ArrivalStage(rate: 0.5, duration: .seconds(3_600))),
      ("30@0", ArrivalStage(rate: 0, duration: .seconds(30))), ("2m", nil), ("@50", nil), ("2m@", nil), ("0s@5", nil),
      ("2m@-1", nil),
      ("2m@nan", nil), ("25h@1", nil), ("2m@1@2", nil), ("2m@100001", nil),
    ] as [(String, ArrivalStage?)])
  func `a stage is a duration and a rate`(text: String, stage: ArrivalStage?) {
    #expect(ArrivalStage(argument: text) == stage)
  }

  @Test(
    arguments: [
      ("500ms", 500_000_000), ("60s", 60_000_000_000), ("2m", 120_000_000_000), ("1h", 3_600_000_000_000),
      ("1m30s", 90_000_000_000), ("0.5", 500_000_000), ("60", 60_000_000_000), ("7us", 7_000), ("", nil), ("s", nil),
      ("5x", nil),
      ("-5s", nil), ("1m30", nil), ("1 m", nil), ("1.2.3s", nil), ("99999999h", nil),
    ] as [(String, Int64?)])
  func `a duration has a unit, or is seconds`(text: String, nanoseconds: Int64?) {
    #expect(LoadDuration(text)?.nanoseconds.count == nanoseconds)
    if let nanoseconds {
      #expect(LoadDuration(LoadDuration(Nanoseconds(nanoseconds)).description)?.nanoseconds.count == nanoseconds)
    }
  }

  @Test func `a limit needs its unit`() {
    #expect(LoadDuration("500", needsUnit: true) == nil && LoadDuration("500ms", needsUnit: true) != nil)
  }

  // MARK: Providers and faults

  @Test func `devices are spread over the providers by weight`() throws {
    let shape = try Self.shape(mix: "apns=1,fcm=2,expo=7")
    var counts: [LoadProvider: Int] = [:]
    for number in 0..<10_000 { for device in shape.call(number).devices { counts[device.provider, default: 0] += 1 } }
    // Five standard deviations of a binomial distribution: neighbouring calls must have nothing to do with each other.
    for (provider, share) in [(LoadProvider.apns, 0.1), (.fcm, 0.2), (.expo, 0.7)] {
      let limit = 5 * (30_000 * share * (1 - share)).squareRoot()
      #expect(abs(Double(counts[provider, default: 0]) - 30_000 * share) < limit)
    }
  }

  @Test func `a weight of nothing is no device`() throws {
    let shape = try Self.shape(mix: "apns=0,fcm=1")
    #expect((0..<500).allSatisfy { shape.call($0).devices.allSatisfy { $0.provider == .fcm } })
  }

  @Test(arguments: [
    ("", "“” is not of the form name=value"), ("apns", "“apns” is not of the form name=value"),
    ("gcm=1", "gcm is no provider: apns, fcm, expo or webpush"), ("apns=1,apns=2", "apns is given twice"),
    ("apns=-1", "apns=-1: a weight is a number from 0 up"), ("apns=nan", "apns=nan: a weight is a number from 0 up"),
    ("apns=0", "no provider has a weight above 0"),
  ])
  func `a mix that makes no sense is refused with the reason`(text: String, message: String) {
    #expect(throws: LoadOptionError(message)) { try LoadMix(text) }
  }

  @Test func `a share of the devices has a fault, in the word of its provider`() throws {
    let shape = try Self.shape(devices: 10, faults: "dead=1%,receipt_DeviceNotRegistered=0.1")
    let devices = (0..<10_000).flatMap { shape.call($0).devices }
    let apns = devices.filter { $0.provider == .apns }
    #expect(Set(apns.map(\.fault)) == [nil, "dead4100"])
    #expect(abs(Double(apns.count { $0.fault != nil }) / Double(apns.count) - 0.01) < 0.003)
    let expo = devices.filter { $0.provider == .expo }
    #expect(
      Set(expo.map(\.fault)) == [nil, "fault-DeviceNotRegistered-", "fault-receipt_DeviceNotRegistered-"])
    #expect(abs(Double(expo.count { $0.fault != nil }) / Double(expo.count) - 0.11) < 0.01)
    #expect(Set(devices.filter { $0.provider == .fcm }.map(\.fault)) == [nil, "fault-UNREGISTERED-"])
  }

  @Test(arguments: [
    ("dead=101%", "dead=101%: a share is 0% to 100%, or 0 to 1"),
    ("dead=2", "dead=2: a share is 0% to 100%, or 0 to 1"),
    ("ded=1%", "there is no fault ded: it is one of dead, outage, throttled, or of simulate --list-faults"),
    ("dead=60%,outage=50%", "the shares of apns are more than 100% together"),
  ])
  func `faults that make no sense are refused with the reason`(text: String, message: String) {
    #expect(throws: LoadOptionError(message)) { try LoadFaults(text) }
  }

  @Test func `a fault's prefix is one that the simulators list`() throws {
    let names = LoadFaults.shared.map(\.name) + ["hang", "lose", "reset", "refuse", "close", "html", "slow", "cutoff"]
    let listed = Set(FaultCatalog.text.split(separator: "\n").compactMap { $0.split(separator: " ").first })
    for name in names {
      let rule = try LoadFaults("\(name)=1").rules[0]
      #expect(rule.prefixes.count == LoadProvider.allCases.count, "\(name)")
      for (_, prefix) in rule.prefixes {
        let word = prefix.hasSuffix("-") ? prefix.dropLast() : prefix[...]
        #expect(listed.contains(word), "\(name): \(prefix)")
      }
    }
  }

  // MARK: Calls and tokens

  @Test func `a token says which delivery it belongs to, whatever its fault`() {
    for provider in LoadProvider.allCases {
      for fault in [nil, provider == .apns ? "dead4100" : "fault-slow-"] {
        for delivery in [0, 1, 255, 299_999, 1 << 40] {
          let text = LoadToken.text(of: .init(provider: provider, fault: fault), run: Self.run, delivery: delivery)
          #expect(LoadToken.delivery(in: Array(text.utf8)[...], run: Array(Self.run.utf8)) == delivery)
          #expect(LoadToken.delivery(in: Array(text.utf8)[...], run: Array("1badcafe".utf8)) == nil)
          if provider == .apns { #expect(text.count == 64 && text.allSatisfy(\.isHexDigit)) }
        }
      }
    }
    for token in ["", "]", "0badcafe", "x0badcafe00000000000g"] {
      #expect(LoadToken.delivery(in: Array(token.utf8)[...], run: Array(Self.run.utf8)) == nil)
    }
  }

  @Test func `a call is the same every time, and its tokens are its own`() throws {
    let shape = try Self.shape(kind: .message)
    let call = shape.call(7)
    #expect(call.recipients == shape.call(7).recipients && call.payload == shape.call(7).payload)
    #expect(call.id == "loadtest-0badcafe-7" && call.firstDelivery == 21)
    let recipients = try #require(
      JSONSerialization.jsonObject(with: Data(call.recipients)) as? [[String: String]])
    #expect(recipients.map { $0["userId"] } == (21...23).map { "loadtest-0badcafe-\($0)" })
    #expect(recipients.allSatisfy { $0["voipPushToken"] == nil }, "a notification never uses a VoIP token")
    #expect(try JSONSerialization.jsonObject(with: Data(call.payload)) is [String: Any])
  }

  // MARK: Hosts

  @Test(arguments: [
    ("postgres://u@localhost/db", true), ("postgres://u@127.0.0.1:5433/db", true), ("postgres://u@[::1]/db", true),
    ("postgres:///db?host=/var/run/postgresql", true), ("postgres://u@127.255.3.4/db", true),
    ("postgres://u@db.example.com/db", false), ("postgres://u@10.0.0.1/db", false),
    ("postgres://u@localhost,db.example.com/db", false), ("postgres://u@localhost/db?hostaddr=10.0.0.1", false),
    ("postgres:///db?service=production", false), ("postgres://u@127.0.0.1.example.com/db", false),
  ])
  func `only this machine counts as this machine`(url: String, isLocal: Bool) throws {
    #expect(try PostgresHosts.named(in: url).allSatisfy(PostgresHosts.isLoopback) == isLocal)
  }

  @Test func `a URL that cannot be read is not quoted`() {
    let error = #expect(throws: PostgresError.self) { try PostgresHosts.named(in: "postgres://u:secret@[::1/db") }
    #expect(error?.description.contains("secret") == false)
  }
}
