// From a commit in Postgres to the providers and back, over real TLS.

import Foundation
import Queue
import Runtime
import Simulators
import TestSupport
import Testing

@testable import Settings

@Suite("End to end", .timeLimit(.minutes(10)))
struct EndToEndTests {
  @Test("one committed call rings an iPhone, an Android phone and an Expo phone, and Postgres says so")
  func oneCall() async throws {
    try await GatewayHarness.with { gateway in
      try await gateway.enqueue("call-1")
      let voip = try #require(try await gateway.simulators.apnsProduction.waitForAccepted(1).first)
      let fcm = try #require(try await gateway.simulators.fcm.waitForAccepted(1).first)
      let expo = try #require(try await gateway.simulators.expo.waitForAccepted(1).first)
      try await gateway.settled()
      try await gateway.expectOutcomes("apns delivered 1,expo delivered 1,fcm delivered 1")
      #expect(voip.topic == "com.example.app.voip")
      #expect(voip.kind == "voip")
      #expect(fcm.token == "cQ7mZl2pR0uX:APA91bHexample-token")
      #expect(expo.token == "ExponentPushToken[aBcDeFgHiJkLmNoPqRsTuV]")
      #expect(await gateway.refusals() == [:])

      let events = try await gateway.database.value(
        "select string_agg(concat_ws(' ', event, provider, status), ',' order by provider, at) from push.timeline('call-1') where provider is not null"
      )
      #expect(events == "sent apns,delivered apns 200,sent expo,delivered expo 200,sent fcm,delivered fcm 200")
      let times = try await gateway.database.value(
        """
        -- The gateway's estimate of the database's clock is wrong by up to half a round trip.
        select bool_and(created_at <= sent_at + interval '30 s' and sent_at <= answered_at
          and answered_at <= finished_at + interval '1 ms')
        from push.delivery_history
        """)
      #expect(times == "true")
    }
  }

  @Test("a thousand calls of three devices in one statement are all delivered, and no push is sent without a record")
  func bulk() async throws {
    try await GatewayHarness.with(patience: .seconds(60)) { gateway in
      try await gateway.database.execute(GatewayHarness.bulk(1000))
      try await gateway.settled()
      try await gateway.expectOutcomes("apns delivered 1000,expo delivered 1000,fcm delivered 1000")
      let counts = await gateway.pushesByToken()
      #expect(counts.count == 3000)
      #expect(try await gateway.unrecordedPushes() == [:])
      #expect(await gateway.refusals() == [:])
    }
  }

  @Test("a push that a provider rejects permanently is dead with the provider's reason, and the others ring")
  func plainFailure() async throws {
    try await GatewayHarness.with { gateway in
      _ = try await gateway.database.value(
        """
        select deliveries from push.enqueue_call('{"callId": "call-2", "from": "doorman"}',
          '[{"userId": "a", "voipPushToken": "dead4100\(String(repeating: "0", count: 56))"},
            {"userId": "b", "fcmToken": "fault-UNREGISTERED-0123456789"},
            {"userId": "c", "voipPushToken": "\(String(repeating: "cd", count: 32))"}]', 'porteiro')
        """)
      try await gateway.settled()
      let rows = try await gateway.database.value(
        "select string_agg(concat_ws(' ', user_id, outcome, reason, attempts), ',' order by user_id) from push.delivery_history"
      )
      #expect(rows == "a dead Unregistered 1,b dead UNREGISTERED 1,c delivered 1")
    }
  }

  @Test("a push that fails is tried again within the ring window, and the call rings")
  func retry() async throws {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan([
      FaultRule(provider: .apns, fault: .reason("ServiceUnavailable"), count: 2)
    ])
    try await GatewayHarness.with(simulators: configuration) { gateway in
      try await gateway.enqueue("call-3")
      try await gateway.settled()
      let row = try await gateway.database.value(
        "select concat_ws(' ', outcome, attempts) from push.delivery_history where provider = 'apns'")
      #expect(row == "delivered 3")
    }
  }

  @Test("when the database cuts every connection of the gateway, no call is lost")
  func cutConnections() async throws {
    try await GatewayHarness.with { gateway in
      let cut = """
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name like 'push-gateway%'
        """
      for round in 1...5 {
        try await gateway.enqueue("before-\(round)")
        try await gateway.database.execute(cut)
        try await gateway.enqueue("after-\(round)")
      }
      try await gateway.settled()
      let outcomes = try await gateway.database.value(
        "select concat_ws(' ', count(*), count(*) filter (where outcome = 'delivered'), count(distinct call_id)) from push.delivery_history"
      )
      #expect(outcomes == "30 30 10")
    }
  }

  @Test("a call that is enqueued at the moment the listener's connection is killed is found by polling")
  func cutListener() async throws {
    try await GatewayHarness.with { gateway in
      // One transaction kills the listener and enqueues the call, so nobody hears the notification.
      try await gateway.database.execute(
        """
        begin;
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name = 'push-gateway listener';
        select push.enqueue_call('\(GatewayHarness.baseCallData("unheard"))', '\(GatewayHarness.residents)', 'porteiro');
        commit;
        """)
      try await gateway.settled()
      try await gateway.expectOutcomes("apns delivered 1,expo delivered 1,fcm delivered 1")
    }
  }

  @Test("a shutdown during a burst loses nothing, counts nothing as failed, and leaves the rest to be delivered")
  func shutdown() async throws {
    try await GatewayHarness.with { settings in
      settings.drainSeconds = 120
    } _: { gateway in
      try await gateway.database.execute(GatewayHarness.bulk(2000))
      _ = try await gateway.simulators.apnsProduction.waitForAccepted(100)
      try await gateway.stop()
      let account = try await gateway.database.value(
        """
        select concat_ws(' ',
          (select count(*) from push.delivery_history) + (select count(*) from push.deliveries),
          (select count(*) from push.delivery_history where outcome <> 'delivered'),
          (select count(*) from push.deliveries
            where state <> 'ready' or attempt <> 0 and last_reason is distinct from 'TimedOut'),
          (select count(*) from push.gateways where alive))
        """)
      #expect(account == "6000 0 0 0")
      // On a busy machine a request may get no answer in time. It may have arrived.
      let delivered = try await gateway.database.value("select count(*) from push.delivery_history")
      let unknown = try await gateway.database.value("select count(*) from push.deliveries where attempt <> 0")
      let (least, more) = (try #require(Int(delivered)), try #require(Int(unknown)))
      #expect(await (least...least + more).contains(gateway.pushesByToken().count))
    }
  }

  @Test(
    "deliveries to an unreachable provider stay in the outbox without a counted attempt, and other lanes are not affected"
  )
  func unreachable() async throws {
    try await GatewayHarness.with { settings in
      settings.apps[0].apns?.productionURL.port = 1  // nobody listens there
    } _: { gateway in
      try await gateway.enqueue("call-4")
      _ = try await gateway.simulators.fcm.waitForAccepted(1)
      _ = try await gateway.simulators.expo.waitForAccepted(1)
      try await gateway.database.wait(for: "select count(*) from push.delivery_history", toBe: "2")
      try await gateway.expectOutcomes("expo delivered 1,fcm delivered 1")
      #expect(try await gateway.database.value("select count(*) from push.deliveries where provider = 'apns'") == "1")
    }
  }
}
