use super::super::pending_releases::ReleaseGoal;
use super::*;
use crate::lock_shared::LockShared;
use redlock_proto::LockMode;

/// The node is back after most of a timeout and refuses the release: the retry does not restart the timeout.
#[tokio::test]
async fn flush_waits_for_a_pending_release_for_one_timeout() {
    let at = |ms: u64| Moment::on_one_clock(1_000_000_000 + ms * 1_000_000);
    let timeout = Duration::from_secs(1);
    let locks = crate::LockManager::builder().nodes(["redis://localhost"]).build().unwrap();
    let crate::settings::Places::Servers(targets) = &locks.settings().places else { panic!("a server") };
    let timeouts = Timeouts { node_timeout: timeout, connect_timeout: timeout };
    let mut conn = NodeConn::new(0, &Arc::from("a"), Arc::clone(&targets[0]), timeouts, None);
    conn.fail(Failure::new(FailureKind::Cut, "cut"), at(0), &mut Vec::new());
    let shared =
        Arc::new(LockShared::new(locks.key(b"job").unwrap(), LockMode::Exclusive, timeout, locks.settings()));
    let ask = redlock_proto::Ask::Release { floor: None };
    let request = redlock_proto::Request { ask, ttl: timeout * 60, sent: at(0) };
    let goal = ReleaseGoal::Release;
    conn.queue_release(PendingRelease::new(goal, 0..1, &shared, &request, &mut BytesMut::new()), at(0));
    conn.state = ConnState::Up(Box::new(tokio::io::duplex(64).0));
    conn.connected_at = at(850);
    assert!(conn.awaits_release(at(10), at(999)));
    assert!(!conn.awaits_release(at(10), at(1_000)));
}
