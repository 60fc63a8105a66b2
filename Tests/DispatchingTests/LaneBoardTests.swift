// Tests of what a dispatcher is told that joins others on a lane.

import Queue
import Runtime
import Synchronization
import Testing

@testable import Dispatching

@Suite("Lane board", .timeLimit(.minutes(10))) struct LaneBoardTests {
  private let loop = EventLoop(name: "board")
  private let board: LaneBoard
  private let heard = Heard()

  /// What the dispatcher that joins last is told.
  private final class Heard: Sendable {
    private let kept = Mutex<[LaneNews]>([])
    var all: [LaneNews] { kept.withLock { $0 } }
    func keep(_ news: LaneNews) { kept.withLock { $0.append(news) } }
  }

  init() { board = LaneBoard(on: loop) { $1 } }

  /// What a dispatcher is told that joins after these news.
  private func joins(
    after change: @escaping @Sendable (LaneBoard, Instant) -> Void
  ) async -> (told: [LaneNews], at: Instant) {
    defer { loop.stop() }
    return await withCheckedContinuation { continuation in
      loop.execute { [loop, board, heard] in
        let now = loop.now
        change(board, now)
        board.join(9) { heard.keep($0) }
        continuation.resume(returning: (heard.all, now))
      }
    }
  }

  @Test("a dispatcher that takes over is told of the open circuit and of the pause")
  func takesOver() async {
    let (told, now) = await joins { board, now in
      board.post(.throttled(until: now + .seconds(90)), from: 0)
      board.post(.throttled(until: now + .seconds(60)), from: 1)
      board.post(.circuitOpened(until: now + .seconds(15)), from: 0)
    }
    #expect(told == [.circuitOpened(until: now + .seconds(15)), .throttled(until: now + .seconds(90))])
  }

  @Test("it is not told of what is over")
  func over() async {
    let (told, _) = await joins { board, now in
      board.post(.circuitOpened(until: now + .seconds(15)), from: 0)
      board.post(.circuitClosed, from: 1)
      board.post(.throttled(until: now - .seconds(1)), from: 0)
    }
    #expect(told == [])
  }

  @Test("with other credentials it tries at once")
  func otherCredentials() async throws {
    let (told, now) = await joins { board, now in
      board.post(.circuitOpened(until: now + .seconds(15)), from: 0)
      board.credentialsChanged()
    }
    guard case .circuitOpened(let until)? = told.first, told.count == 1 else {
      Issue.record("\(told)")
      return
    }
    #expect(until < now + .seconds(15))
  }
}
