use super::*;
use std::sync::mpsc;
use std::thread;

const MB: usize = 1 << 20;

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(30)
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn small_lines_pass_whatever_big_ones_hold() {
    let room = Room::default();
    let big = [(); 3].map(|()| Hold::new(&room, 2 * MB, MB));
    assert_eq!(big[0].grow(MB, later()), Ok(()), "shared");
    assert_eq!(big[1].grow(MB, later()), Ok(()), "in the lane");
    assert_eq!(big[2].grow(MB, soon()), Err(NoRoom));
    for _ in 0..1000 {
        let small = Hold::new(&room, 2 * MB, MB);
        assert_eq!(small.grow(OWN, soon()), Ok(()));
        small.settle(OWN);
    }
    assert_eq!(room.held(), 2 * MB);
    drop(big);
    assert_eq!(room.held(), 0);
}

/// Each holds half of what all may hold and wants the other half.
#[test]
fn lines_that_grow_side_by_side_do_not_wait_for_each_other_without_end() {
    let room = Room::default();
    let (told, heard) = mpsc::channel();
    thread::scope(|scope| {
        for n in 0..16 {
            let (room, told) = (&room, told.clone());
            scope.spawn(move || {
                let hold = Hold::new(room, 2 * MB, MB);
                let grown = (1..=16).try_for_each(|part| {
                    thread::yield_now();
                    hold.grow(MB / 16 * part, later())
                });
                hold.settle(MB);
                assert!(room.held() <= 2 * MB);
                told.send((n, grown)).unwrap();
            });
        }
        for _ in 0..16 {
            let (n, grown) = heard.recv_timeout(Duration::from_secs(30)).unwrap();
            assert_eq!(grown, Ok(()), "line {n}");
        }
    });
    assert_eq!(room.held(), 0);
}

#[test]
fn the_lane_is_free_again_when_what_is_in_it_finds_room_elsewhere() {
    let room = Room::default();
    let [a, b, c] = [(); 3].map(|()| Hold::new(&room, 2 * MB, MB));
    a.grow(MB, later()).unwrap();
    b.grow(MB, later()).unwrap();
    // Whole, but all that is shared is taken: the lane stays b's.
    b.settle(MB);
    assert_eq!(c.grow(MB, soon()), Err(NoRoom));
    // b moves to what a leaves, and c has the lane.
    a.settle(0);
    assert_eq!(c.grow(MB, soon()), Ok(()));
    assert_eq!(room.held(), 2 * MB);
}

#[test]
fn an_answer_counts_and_is_never_refused() {
    let room = Room::default();
    let [a, b, c, d] = [(); 4].map(|()| Hold::new(&room, 2 * MB, MB));
    a.settle(MB);
    b.settle(MB);
    assert_eq!(room.held(), 2 * MB);
    // The lane is there for one line in any case.
    assert_eq!([c.grow(MB, soon()), d.grow(MB, soon())], [Ok(()), Err(NoRoom)]);
    drop((a, b, c));
    assert_eq!(d.grow(MB, soon()), Ok(()));
}

#[test]
fn who_waits_longest_is_served_first() {
    let room = Room::default();
    let holder = Hold::new(&room, 2 * MB, MB);
    let lane = Hold::new(&room, 2 * MB, MB);
    holder.grow(MB, later()).unwrap();
    lane.grow(MB, later()).unwrap();
    let (told, heard) = mpsc::channel();
    thread::scope(|scope| {
        let first = Hold::new(&room, 2 * MB, MB);
        let second = Hold::new(&room, 2 * MB, MB);
        for (name, hold, bytes) in [("first", first, MB), ("second", second, MB / 2)] {
            let told = told.clone();
            scope.spawn(move || {
                hold.grow(bytes, later()).unwrap();
                told.send(name).unwrap();
                hold.settle(0);
            });
            while lock(&room.state).waiting.len() < if name == "first" { 1 } else { 2 } {
                thread::yield_now();
            }
        }
        // Half is room enough for the second, not for the first.
        holder.settle(MB / 2);
        assert_eq!(heard.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
        holder.settle(0);
        assert_eq!([heard.recv().unwrap(), heard.recv().unwrap()], ["first", "second"]);
    });
}
