import Runtime
import Testing

@testable import Queue

@Suite("Complaints")
struct ComplaintsTests {
  @Test("a reason is logged when it is new, and once a minute while it lasts")
  func reasons() {
    var complaints = Complaints()
    func isNew(_ reason: String, at seconds: Int64) -> Bool {
      complaints.isNew(reason, Instant(nanoseconds: 0) + .seconds(seconds))
    }
    #expect(isNew("refused", at: 0))
    #expect(!isNew("refused", at: 2))
    #expect(isNew("password", at: 4))
    #expect(!isNew("refused", at: 59))
    #expect(isNew("refused", at: 60))
    #expect(!isNew("refused", at: 62))
    #expect(!isNew("password", at: 63))
  }

  @Test("the number of new reasons that are logged is limited")
  func many() {
    var complaints = Complaints()
    let said = (0..<100).filter { complaints.isNew("reason \($0)", Instant(nanoseconds: 0)) }
    #expect(said.count == 17)
  }
}
