// The metric families of the current state: lanes and their connections, the outbox, listeners, the process.

import Dispatching
import Providers
import PushModel
import Queue
import Runtime

extension ExpositionWriter {
  /// Calls `write` with each lane's app, provider and state.
  private func forEachLane(
    of snapshot: MetricsSnapshot, _ write: (_ app: String, _ provider: String, MetricsSnapshot.Lane) -> Void
  ) {
    for (counters, lane) in zip(snapshot.counters.lanes, snapshot.lanes) {
      write(counters.name.app, counters.name.channel, lane)
    }
  }

  /// Writes the state of the connections to the providers, which all databases share.
  mutating func write(providers snapshot: MetricsSnapshot, wallMilliseconds: Int64) {
    func each(_ write: (_ app: String, _ provider: String, MetricsSnapshot.Lane) -> Void) {
      forEachLane(of: snapshot, write)
    }
    family("push_gateway_connections", .gauge, "Connections to the provider; for Expo, requests in flight")
    each {
      sample($2.provider.openConnections, ["app": $0, "provider": $1, "state": "open"])
      sample($2.provider.connectingConnections, ["app": $0, "provider": $1, "state": "connecting"])
    }
    family("push_gateway_goaways_total", .counter, "GOAWAY frames from the provider, by error code")
    each { app, provider, lane in
      for reason in ProviderReasons.goAways {
        sample(lane.provider.goAways[reason] ?? 0, ["app": app, "provider": provider, "reason": reason])
      }
    }
    family(
      "push_gateway_connections_replaced_total", .counter,
      "Connections to the provider that had to be replaced, by reason; not for Expo, whose connections libcurl manages")
    each { app, provider, lane in
      for reason in ConnectionReplacement.allCases {
        sample(
          lane.provider.replacements[reason] ?? 0, ["app": app, "provider": provider, "reason": reason.rawValue])
      }
    }
    family(
      "push_gateway_hedged_total", .counter,
      "Invites sent a second time over another connection, because they had gone unanswered for too long")
    each { sample($2.provider.hedged, ["app": $0, "provider": $1]) }
    family(
      "push_gateway_unanswered_seconds", .gauge,
      "Time for which the provider has answered no request although some were sent; 0 below a second")
    each { sample($2.provider.unanswered.seconds, ["app": $0, "provider": $1]) }
    family("push_gateway_provider_token_age_seconds", .gauge, "Age of the token that authenticates us to the provider")
    each {
      let age = $2.provider.tokenIssuedAtMilliseconds.map { Double(wallMilliseconds - $0) / 1000 } ?? 0
      sample(max(0, age), ["app": $0, "provider": $1])
    }
    family(
      "push_gateway_credentials_refused", .gauge,
      "1 while the provider refuses the lane's new credentials, so that the former ones are still used")
    each { sample($2.provider.refusedCredentials != nil, ["app": $0, "provider": $1]) }
    family("push_gateway_clock_skew_seconds", .gauge, "How far the provider's clock is ahead of ours")
    each { sample($2.clockSkew.seconds, ["app": $0, "provider": $1]) }
  }

  mutating func write(lanes snapshot: MetricsSnapshot) {
    func each(_ write: (_ app: String, _ provider: String, MetricsSnapshot.Lane) -> Void) {
      forEachLane(of: snapshot, write)
    }
    family("push_gateway_lane_in_flight", .gauge, "Deliveries that the replica holds")
    each { sample($2.condition.inFlight, ["app": $0, "provider": $1]) }
    family("push_gateway_lane_window", .gauge, "Maximum number of deliveries that the replica may hold")
    each { sample($2.condition.window, ["app": $0, "provider": $1]) }
    family(
      "push_gateway_lane_capacity", .gauge, "Number of requests that the connections can carry; 0 if none is usable")
    each { sample($2.condition.capacity, ["app": $0, "provider": $1]) }
    family("push_gateway_lane_circuit", .gauge, "1 for the state that the lane's circuit is in")
    each { app, provider, lane in
      for state in LaneCircuit.State.words {
        sample(lane.condition.circuit.word == state, ["app": app, "provider": provider, "state": state])
      }
    }
    family(
      "push_gateway_lane_refused", .gauge,
      "1 while the provider refuses the lane's credentials, by what that concerns (all or some of its pushes, or new "
        + "credentials that are not used yet) and the provider's reason")
    for (counters, lane) in zip(snapshot.counters.lanes, snapshot.lanes) {
      let (name, refusal) = (counters.name, lane.condition.refusal)
      let labels = ReasonLabels.of(name.provider)
      let reason = refusal.map {
        ProviderReasons.oauth.contains($0.reason) ? $0.reason : labels.words[labels.index(of: $0.reason)]
      }
      for extent in LaneRefusal.Extent.allCases {
        let isRefused = refusal?.extent == extent
        sample(
          isRefused,
          [
            "app": name.app, "provider": name.channel, "state": extent.rawValue,
            "reason": isRefused ? reason ?? "" : "",
          ])
      }
    }
    family("push_gateway_lane_throttled_seconds", .gauge, "Minimum time for which the lane sends nothing")
    each { sample($2.condition.wait.seconds, ["app": $0, "provider": $1]) }
  }

  /// Writes what the database shows of the configured lanes.
  mutating func write(_ sight: OutboxGauges, _ lanes: [LaneName]) {
    let lanes = lanes.map { (app: $0.app, provider: $0.channel) }
    var seen: Set<String> = []
    let apps = lanes.map(\.app).filter { seen.insert($0).inserted }
    family("push_gateway_pending", .gauge, "Pending deliveries of all replicas; an estimate above a few thousand")
    for (app, provider) in lanes {
      for kind in PushKind.allCases {
        for (state, word) in OutboxGauges.states.enumerated() {
          let count = sight.value(
            "pending", app: app, provider: provider, kind: Int16(kind.rawValue), state: Int16(state))
          sample(Int(count), ["app": app, "provider": provider, "kind": kind.word, "state": word])
        }
      }
    }
    family(
      "push_gateway_oldest_ready_seconds", .gauge,
      "Age of the oldest delivery that is ready to be sent; 0 if there is none")
    for (app, provider) in lanes {
      for kind in PushKind.allCases {
        sample(
          sight.value("oldest_ready", app: app, provider: provider, kind: Int16(kind.rawValue), state: 0),
          ["app": app, "provider": provider, "kind": kind.word])
      }
    }
    family("push_gateway_lane_paused", .gauge, "1 while an operator has paused the lane")
    for (app, provider) in lanes {
      sample(sight.value("paused", app: app, provider: provider) > 0, ["app": app, "provider": provider])
    }
    family("push_gateway_invalidation_held", .gauge, "1 while dead tokens of the lane are quarantined")
    for (app, provider) in lanes {
      sample(sight.value("held", app: app, provider: provider) > 0, ["app": app, "provider": provider])
    }
    family("push_gateway_receipts_pending", .gauge, "Expo tickets whose receipts have not been fetched")
    for app in apps { sample(Int(sight.value("receipts_pending", app: app)), ["app": app]) }
    family("push_gateway_receipts_overdue", .gauge, "Pending receipts due for a minute, or already requested in vain")
    for app in apps { sample(Int(sight.value("receipts_overdue", app: app)), ["app": app]) }
    family("push_gateway_api_keys_expiring", .gauge, "Keys of the HTTP API that are in use and expire within 30 days")
    for app in apps { sample(Int(sight.value("keys_expiring", app: app)), ["app": app]) }
    family(
      "push_gateway_quota_used_ratio", .gauge,
      "What the app enqueued in the last minute, divided by its quota; 0 if it has none")
    for app in apps {
      for kind in ["calls", "notifications", "recipients"] {
        sample(sight.value("quota_\(kind)", app: app), ["app": app, "kind": kind])
      }
    }
    family("push_gateway_webhook_waiting", .gauge, "Events that the app's receiver has not acknowledged yet")
    for app in apps { sample(Int(sight.value("webhook_waiting", app: app)), ["app": app]) }
    family("push_gateway_webhook_oldest_seconds", .gauge, "Age of the oldest of these events; 0 if there is none")
    for app in apps { sample(sight.value("webhook_oldest", app: app), ["app": app]) }
    family(
      "push_gateway_webhook_failing_seconds", .gauge,
      "Time since the app's receiver acknowledges no event; 0 if it acknowledged the last one")
    for app in apps { sample(sight.value("webhook_failing", app: app), ["app": app]) }
    family("push_gateway_webhook_stopped", .gauge, "1 while an operator has paused the webhook, or after a 410")
    for app in apps { sample(sight.value("webhook_stopped", app: app) > 0, ["app": app]) }
    family(
      "push_gateway_webhook_dropped_total", .counter, "Events deleted without an acknowledgement, of all replicas")
    for app in apps { sample(Int(sight.value("webhook_dropped", app: app)), ["app": app]) }
    family(
      "push_gateway_overdue_jobs", .gauge,
      "Jobs of housekeeping that are not done in time: each run fails, or none takes place")
    for state in ["warn", "bad"] { sample(Int(sight.value("overdue_\(state)")), ["state": state]) }
    family("push_gateway_replicas_alive", .gauge, "Replicas whose heartbeat is current")
    sample(Int(sight.value("replicas_alive")))
  }

  mutating func write(lockTableUsed: Double) {
    family(
      "push_gateway_lock_table_used_ratio", .gauge,
      "Locks held in Postgres, divided by the number it guarantees room for; from 0.5 on the table may be full")
    sample(lockTableUsed)
  }

  mutating func write(listeners: [ListenerCredentials]) {
    family(
      "push_gateway_certificate_expiry_timestamp_seconds", .gauge,
      "When the certificate of a listener with TLS ends, in seconds since 1970")
    for listener in listeners { sample(Int(listener.expiresAtSeconds), ["listener": listener.name]) }
    family(
      "push_gateway_tls_handshake_failures_total", .counter, "TLS handshakes of a listener that failed, by reason")
    for listener in listeners {
      for reason in HandshakeFailures.Reason.allCases {
        sample(listener.handshakeFailures.count(reason), ["listener": listener.name, "reason": reason.rawValue])
      }
    }
  }

  mutating func write(isDatabaseReady: Bool) {
    family("push_gateway_database_ready", .gauge, "1 while the gateway takes calls from the database")
    sample(isDatabaseReady)
  }

  mutating func write(isReady: Bool, version: String) {
    family("push_gateway_ready", .gauge, "1 while /readyz answers 200")
    sample(isReady)
    family("push_gateway_build_info", .gauge, "Always 1; the label is the version of the program")
    sample(1, ["version": version])
  }

  mutating func write(_ process: ProcessStatistics) {
    family("process_cpu_seconds_total", .counter, "User and system CPU time used")
    sample(process.cpuSeconds)
    family("process_resident_memory_bytes", .gauge, "Resident memory")
    sample(process.residentBytes)
    family("process_virtual_memory_bytes", .gauge, "Virtual memory")
    sample(process.virtualBytes)
    family("process_open_fds", .gauge, "Open file descriptors")
    sample(process.openDescriptors)
    family("process_max_fds", .gauge, "Maximum number of open file descriptors")
    sample(process.maxDescriptors)
    family("process_start_time_seconds", .gauge, "When the process started, in seconds since 1970")
    sample(process.startSeconds)
  }
}
