use super::*;

fn signature(n: u32) -> [u8; 32] {
    let mut signature = [7; 32];
    signature[..4].copy_from_slice(&n.to_le_bytes());
    signature
}

#[test]
fn a_message_is_new_once() {
    let mut window = ReplayWindow::new(300);
    assert_eq!(window.check("a", &signature(1), 1000, 1000, 10), Verdict::New);
    assert_eq!(window.check("a", &signature(1), 1000, 1000, 10), Verdict::Replayed);
    assert_eq!(window.check("a", &signature(1), 1000, 1300, 10), Verdict::Replayed);
    assert_eq!(window.check("a", &signature(2), 1000, 1000, 10), Verdict::New);
    assert_eq!(window.check("b", &signature(1), 1000, 1000, 10), Verdict::New);
}

#[test]
fn what_was_forgotten_for_its_age_stays_refused_when_the_clock_is_set_back() {
    let mut window = ReplayWindow::new(300);
    assert_eq!(window.check("a", &signature(1), 1000, 1000, 10), Verdict::New);
    assert_eq!(window.check("a", &signature(2), 1301, 1301, 10), Verdict::New);
    assert_eq!(window.senders["a"].accepted.len(), 1);
    assert_eq!(window.check("a", &signature(1), 1000, 1000, 10), Verdict::BelowFloor);
    assert_eq!(window.check("a", &signature(3), 1001, 1001, 10), Verdict::New);
    assert_eq!(window.floor("a"), 1000);
}

/// A clock that was a year ahead for a moment must not make a node refuse everything for a year.
#[test]
fn a_clock_that_was_ahead_locks_nobody_out() {
    let mut window = ReplayWindow::new(300);
    let year = 31_536_000;
    assert_eq!(window.check("a", &signature(1), 1000, 1000, 10), Verdict::New);
    assert_eq!(window.check("odd", &signature(2), 1000 + year, 1000 + year, 10), Verdict::New);
    assert_eq!(window.check("a", &signature(1), 1000, 1005, 10), Verdict::BelowFloor);
    assert_eq!(window.check("a", &signature(3), 1005, 1005, 10), Verdict::New);
    assert_eq!(window.check("b", &signature(4), 1006, 1006, 10), Verdict::New);
}

#[test]
fn a_full_memory_forgets_the_oldest_and_refuses_what_is_as_old() {
    let mut window = ReplayWindow::new(300);
    for n in 0..4 {
        assert_eq!(window.check("a", &signature(n), 1000 + i64::from(n), 1000, 4), Verdict::New);
    }
    assert_eq!(window.check("a", &signature(9), 1010, 1000, 4), Verdict::New);
    assert_eq!(window.floor("a"), 1000);
    assert_eq!(window.check("a", &signature(0), 1000, 1000, 4), Verdict::BelowFloor);
    assert_eq!(window.check("a", &signature(8), 999, 1000, 4), Verdict::BelowFloor);
    assert_eq!(window.check("a", &signature(1), 1001, 1000, 4), Verdict::Replayed);
    // Another sender has its own.
    assert_eq!(window.check("b", &signature(0), 1000, 1000, 4), Verdict::New);
    // The newest message may be the oldest by its stamp: accepted once all the same.
    let mut window = ReplayWindow::new(300);
    assert_eq!(window.check("a", &signature(1), 1005, 1000, 1), Verdict::New);
    assert_eq!(window.check("a", &signature(2), 1003, 1000, 1), Verdict::New);
    assert_eq!(window.check("a", &signature(2), 1003, 1000, 1), Verdict::BelowFloor);
    assert_eq!(window.check("a", &signature(1), 1005, 1000, 1), Verdict::Replayed);
}

#[test]
fn a_floor_for_want_of_room_outlives_its_sender() {
    let mut window = ReplayWindow::new(300);
    for n in 0..3 {
        assert_eq!(window.check("a", &signature(n), 1000 + i64::from(n), 1000, 1), Verdict::New);
    }
    assert_eq!(window.check("b", &signature(1), 5000, 5000, 1), Verdict::New);
    assert!(!window.senders.contains_key("a"));
    for n in 0..3 {
        assert_eq!(window.check("a", &signature(n), 1000 + i64::from(n), 1000, 9), Verdict::BelowFloor);
    }
}

#[test]
fn many_senders_leave_nothing_behind() {
    let mut window = ReplayWindow::new(300);
    let mut most = 0;
    for n in 0..200_000_u32 {
        let now = 1000 + i64::from(n) / 100;
        assert_eq!(window.check(&n.to_string(), &signature(n), now, now, 10), Verdict::New);
        most = most.max(window.senders.len());
    }
    // A window and a half of a hundred senders a second.
    assert!(most <= 46_000, "{most}");
    assert!(window.senders.capacity() < 150_000);
}

#[test]
fn nothing_is_ever_accepted_twice_whatever_the_clock_does() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % below
    };
    let mut window = ReplayWindow::new(20);
    let mut accepted = std::collections::HashSet::new();
    let mut now = 1000_i64;
    for _ in 0..100_000 {
        now += match next(50) {
            0 => next(120) as i64 - 50,
            1..=5 => 1,
            _ => 0,
        };
        let timestamp = now + next(41) as i64 - 20;
        let (sender, n) = (["a", "b", "c"][next(3) as usize], next(5) as u32);
        if window.check(sender, &signature(n), timestamp, now, 1 + next(30) as usize) == Verdict::New {
            assert!(accepted.insert((sender, n, timestamp)), "{sender} {n} {timestamp} at {now}");
        }
    }
    assert!(accepted.len() > 1000, "{}", accepted.len());
}

#[test]
fn extreme_times_are_only_times() {
    let mut window = ReplayWindow::new(u64::MAX);
    assert_eq!(window.check("a", &signature(1), i64::MAX, i64::MIN, 0), Verdict::New);
    assert_eq!(window.check("a", &signature(1), i64::MAX, i64::MAX, 0), Verdict::BelowFloor);
    assert_eq!(window.check("b", &signature(1), i64::MIN, i64::MAX, 0), Verdict::BelowFloor);
}
