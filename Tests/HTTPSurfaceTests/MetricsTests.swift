// The counters and the exposition, without a gateway.

import HTTPSurfaceTestSupport
import Foundation
import Providers
import PushModel
import Queue
import Runtime
import Testing

@testable import Dispatching
@testable import HTTPSurface
@testable import Settings

@Suite("Metrics", .timeLimit(.minutes(10))) struct MetricsTests {
  private static let lanes = [
    LaneName(app: "porteiro", provider: .apns), LaneName(app: "porteiro", provider: .fcm),
    LaneName(app: "other", provider: .expo),
  ]

  private static func delivery(_ kind: PushKind = .invite, id: Int64 = 1) -> Delivery {
    Delivery(
      lease: DeliveryLease(outboxID: id, pushNumber: 0, lease: 1), lane: 1, attempt: 1, kind: kind,
      environment: .production,
      platform: .unknown,
      userID: [], token: [], locale: nil, callKind: [], callID: [], payload: [], createdAtMicroseconds: 1_000_000,
      deadlineAtMicroseconds: 61_000_000, deadline: Instant(nanoseconds: 60_000_000_000))
  }

  private static func result(_ outcome: PushOutcome, sent: Int64? = 2_000_000, answered: Int64 = 5_000_000)
    -> PushResult
  {
    PushResult(
      tag: 0, outcome: outcome, status: 200, sentAt: sent.map { Instant(nanoseconds: $0) },
      answeredAt: Instant(nanoseconds: answered))
  }

  // MARK: - From the start

  @Test("before the gateway runs every series of every configured lane exists, at zero, in both formats")
  func zero() async throws {
    let metrics = Metrics(lanes: Self.lanes)
    for format in [ExpositionFormat.prometheus, .openMetrics] {
      let bytes = await metrics.exposition(format, readiness: .notReady(["the gateway is starting"]))
      let exposition = try MetricsExposition(bytes, format == .openMetrics)
      let notZero = exposition.samples.filter { $0.value != 0 && !$0.key.hasPrefix("process_") }.keys.sorted()
      #expect(
        notZero == [
          "push_gateway_build_info{version=\"\(GatewayVersion.current)\"}",
          "push_gateway_lane_circuit{app=\"other\",provider=\"expo\",state=\"closed\"}",
          "push_gateway_lane_circuit{app=\"porteiro\",provider=\"apns\",state=\"closed\"}",
          "push_gateway_lane_circuit{app=\"porteiro\",provider=\"fcm\",state=\"closed\"}",
        ])
      for lane in Self.lanes {
        for kind in PushKind.allCases {
          let labels = "app=\"\(lane.app)\",provider=\"\(lane.channel)\",kind=\"\(kind.word)\""
          for outcome in [
            "accepted", "invalid", "rejected", "unauthorized", "throttled", "unavailable", "unknown", "refused",
          ] {
            #expect(
              exposition.samples["push_gateway_attempts_total{\(labels),outcome=\"\(outcome)\",reason=\"\"}"] == 0)
          }
          for outcome in ["delivered", "delivered_late", "void", "expired", "dead"] {
            #expect(
              exposition.samples["push_gateway_deliveries_total{\(labels),outcome=\"\(outcome)\",reason=\"\"}"] == 0)
          }
          for name in ["enqueue_to_send", "send_to_answer", "enqueue_to_answer"] {
            #expect(exposition.samples["push_gateway_\(name)_seconds_bucket{\(labels),le=\"+Inf\"}"] == 0)
          }
        }
      }
      #expect(!exposition.samples.keys.contains { $0.contains(DispatcherCounters.unknownApp) })
    }
  }

  // MARK: - Cardinality

  @Test("ten thousand reasons that nobody documented are one series: other")
  func hostileReasons() async throws {
    var counters = DispatcherCounters(lanes: Self.lanes)
    for index in 0..<10_000 {
      counters.lanes[0].note(
        Self.result(.rejected(reason: "Hostile\(index)\"\n\\")), of: Self.delivery(), isFirst: false)
      counters.lanes[0].note(.dead, of: .invite, reason: "Hostile\(index)", isUntried: false)
      counters.note(
        Tally(.ended(.invite, .void, reason: "x\(index)", isUntried: true), app: "porteiro", channel: "apns"))
      counters.note(Tally(.enqueued, app: "app-\(index)"))
    }
    counters.lanes[0].note(Self.result(.rejected(reason: "BadTopic")), of: Self.delivery(), isFirst: false)
    var writer = ExpositionWriter(.prometheus)
    writer.write(attemptsAndDeliveries: counters)
    var snapshot = MetricsSnapshot(lanes: Self.lanes)
    snapshot.counters = counters
    writer.write(apps: snapshot)
    let exposition = try MetricsExposition(writer.finish(), false)
    let labels = #"{app="porteiro",provider="apns",kind="invite""#
    #expect(exposition.samples["push_gateway_attempts_total\(labels),outcome=\"rejected\",reason=\"other\"}"] == 10_000)
    #expect(exposition.samples["push_gateway_attempts_total\(labels),outcome=\"rejected\",reason=\"BadTopic\"}"] == 1)
    #expect(exposition.samples["push_gateway_deliveries_total\(labels),outcome=\"dead\",reason=\"other\"}"] == 10_000)
    #expect(exposition.samples["push_gateway_deliveries_total\(labels),outcome=\"void\",reason=\"other\"}"] == 10_000)
    #expect(exposition.samples["push_gateway_calls_total{app=\"_other\"}"] == 10_000)
    let attempts = exposition.samples.keys.filter { $0.hasPrefix("push_gateway_attempts_total") }
    #expect(attempts.count == Self.lanes.count * 4 * 8 + 2)
  }

  @Test("each push service of browsers has series of its own, also for what the database has counted")
  func services() throws {
    let lanes = [WebPushService.google, .apple].map { LaneName(app: "a", provider: .webpush, service: $0) }
    var counters = DispatcherCounters(lanes: lanes)
    counters.note(Tally(.invalidated, app: "a", channel: "webpush/apple"))
    counters.note(Tally(.invalidated, app: "nobody's", channel: "webpush/google"))
    var writer = ExpositionWriter(.prometheus)
    writer.write(attemptsAndDeliveries: counters)
    let samples = try MetricsExposition(writer.finish(), false).samples
    let name = "push_gateway_invalidated_tokens_total"
    #expect(samples["\(name){app=\"a\",provider=\"webpush/google\"}"] == 0)
    #expect(samples["\(name){app=\"a\",provider=\"webpush/apple\"}"] == 1)
    #expect(samples["\(name){app=\"_other\",provider=\"webpush/google\"}"] == 1)
  }

  @Test("every reason that a provider's page documents is its own label")
  func documentedReasons() {
    for provider in ProviderKind.allCases {
      let labels = ReasonLabels.of(provider)
      for word in provider.reasons + ProviderReasons.common { #expect(labels.words[labels.index(of: word)] == word) }
      #expect(Set(labels.words).count == labels.words.count)
      #expect(labels.words.count < 100)
      #expect(labels.index(of: nil) == 0)
      #expect(labels.index(of: "") == 0)
      #expect(labels.words[labels.index(of: "Nobody said that")] == "other")
    }
  }

  // MARK: - Counting

  @Test("times are measured from the commit of the call, and the time to send only at the first request")
  func times() {
    var lane = LaneCounters(LaneName(app: "a", provider: .fcm))
    lane.note(Self.result(.unavailable(reason: "UNAVAILABLE", after: nil)), of: Self.delivery(), isFirst: true)
    lane.note(
      Self.result(.accepted(messageID: nil), sent: 40_000_000, answered: 47_000_000), of: Self.delivery(),
      isFirst: false)
    lane.note(Self.result(.unknown(reason: "TimedOut")), of: Self.delivery(.cancel), isFirst: false)
    lane.note(Self.result(.expired, sent: nil), of: Self.delivery(), isFirst: true)
    let invite = Int(PushKind.invite.rawValue)
    #expect(lane.enqueueToSend[invite].total == 2_000_000)
    #expect(lane.enqueueToSend[invite].count == 1)
    #expect(lane.sendToAnswer[invite].total == 10_000_000)
    #expect(lane.sendToAnswer[invite].count == 2)
    #expect(lane.enqueueToAnswer[invite].total == 47_000_000)
    #expect(lane.enqueueToAnswer[invite].count == 1)
    #expect(lane.ambiguous == 1)
    #expect(lane.attempts.total(of: .accepted) == 1)
    #expect(AttemptOutcome.allCases.reduce(0) { $0 + lane.attempts.total(of: $1) } == 3)
  }

  @Test("written results are counted by outcome, and their batch by its size")
  func settled() {
    var counters = DispatcherCounters(lanes: Self.lanes)
    for (id, outcome) in [(Int64(1), DeliveryOutcome.delivered), (2, .expired)] {
      counters.note(
        Settlement(Self.delivery(id: id), outcome: outcome, attempts: 1, answeredAt: Instant(nanoseconds: 0)),
        inLane: 1, isUntried: outcome == .expired, Instant(nanoseconds: 3_000_000))
    }
    counters.settlementBatches.observe(3)
    #expect(counters.deliveries(.delivered) == 1)
    #expect(counters.lanes[1].expiredBeforeSend == 1)
    #expect(counters.settlementBatches.count == 1)
    #expect(counters.settlementBatches.total == 3)
    #expect(counters.settlementLag.total == 6_000_000)
  }

  @Test("a bucket includes its bound, and larger values go to the last bucket")
  func buckets() {
    var histogram = Histogram(.batch)
    for value: Int64 in [-5, 1, 2, 3, 1000, 1001] { histogram.observe(value) }
    #expect(histogram.counts == [2, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1])
    #expect(histogram.total == 2007)
    #expect(
      Histogram.Bounds.latency.limits.map { Double($0) * Histogram.Bounds.latency.scale }.map {
        ($0 * 1e6).rounded() / 1e6
      }
        == [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60])
  }

  // MARK: - Writing

  @Test("label values and help are escaped, and each format has its own names")
  func escapes() throws {
    func text(_ format: ExpositionFormat) -> String {
      var writer = ExpositionWriter(format)
      writer.family("a_total", .counter, "back\\slash, \"quote\"\nline")
      writer.sample(1, ["b": "\\ \" \n"])
      var histogram = Histogram(.batch)
      histogram.observe(7)
      writer.family("h", .histogram, "sizes")
      writer.sample(histogram)
      return String(decoding: writer.finish(), as: UTF8.self)
    }
    let plain = text(.prometheus)
    #expect(
      plain.hasPrefix(
        "# HELP a_total back\\\\slash, \"quote\"\\nline\n# TYPE a_total counter\na_total{b=\"\\\\ \\\" \\n\"} 1\n"))
    #expect(plain.contains("h_bucket{le=\"10\"} 1\n"))
    #expect(plain.contains("h_sum 7.0\nh_count 1\n"))
    let open = text(.openMetrics)
    #expect(open.hasPrefix("# HELP a back\\\\slash, \\\"quote\\\"\\nline\n# TYPE a counter\na_total{b="))
    #expect(open.contains("h_bucket{le=\"10.0\"} 1\n"))
    #expect(open.hasSuffix("\n# EOF\n"))
    _ = try MetricsExposition(Array(plain.utf8), false)
    _ = try MetricsExposition(Array(open.utf8), true)
  }

  @Test(
    "a scraper that prefers OpenMetrics gets it",
    arguments: [
      (nil, ExpositionFormat.prometheus), ("", .prometheus), ("*/*", .prometheus), ("text/html", .prometheus),
      ("application/openmetrics-text", .openMetrics), ("application/openmetrics-text;q=0", .prometheus),
      ("application/openmetrics-text; version=2.0.0", .prometheus),
      ("text/plain;q=0.9, application/openmetrics-text;q=0.5", .prometheus),
      ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1", .openMetrics),
      (
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,"
          + "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.1", .openMetrics
      ),
    ] as [(String?, ExpositionFormat)])
  func negotiation(accept: String?, format: ExpositionFormat) {
    #expect(ExpositionFormat(accept: accept) == format)
  }
}
