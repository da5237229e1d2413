use super::*;
use crate::state::Fsync;
use crate::testing::TempDir;

/// An hour ahead of UTC, and two from the last Sunday of March 2026 (01:00 UTC) to that of October.
fn central_europe(at: i64) -> i64 {
    if (1_774_746_000..1_792_890_000).contains(&at) {
        7200
    } else {
        3600
    }
}

const fn utc(_: i64) -> i64 {
    0
}

struct Lab {
    dir: TempDir,
    start: Instant,
}

impl Lab {
    fn new(name: &str) -> Lab {
        Lab { dir: TempDir::new(name), start: Instant::now() }
    }

    fn at(&self, wall: i64, steady: f64) -> Moment {
        Moment { wall, steady: self.start + Duration::from_secs_f64(steady) }
    }

    fn open(&self, now: Moment) -> Schedules {
        let (schedules, damaged) =
            Schedules::open(self.dir.path(), utc, now, Arc::new(Syncer::new(Fsync::Never))).unwrap();
        assert_eq!(damaged, None);
        schedules
    }
}

fn new(text: &str) -> New {
    let text = format!("{{\"agent_id\":\"a\",\"message\":{{\"n\":1.0}},{text}}}");
    serde_json::from_str(&text).unwrap()
}

fn wrong(refusal: Refusal) -> String {
    match refusal {
        Refusal::Wrong(why) | Refusal::Busy(why) => why,
        Refusal::Disk(error) => panic!("{error}"),
    }
}

#[test]
fn a_day_s_time_is_found_also_where_clocks_jump() {
    let at = |hour: i64, minute: i64, after| next_daily(hour * 60 + minute, after, central_europe);
    let march_28 = 1_774_656_000; // 01:00 local
    assert_eq!(at(7, 0, march_28), march_28 + 6 * 3600);
    assert_eq!(at(0, 30, march_28), march_28 + 23 * 3600 + 1800, "over midnight");
    // 29 March has no 02:30: it comes at 03:30, and the next day at 02:30 again, 23 hours later.
    let skipped = at(2, 30, march_28 + 2 * 3600);
    assert_eq!(skipped, 1_774_746_000 + 1800);
    assert_eq!(at(2, 30, skipped), skipped + 23 * 3600);
    // 25 October has 02:30 twice: the first counts, the second does not.
    let twice = at(2, 30, 1_792_890_000 - 3600);
    assert_eq!(twice, 1_792_890_000 - 1800);
    assert_eq!(at(2, 30, twice), twice + 25 * 3600);
}

#[test]
fn a_delivery_under_way_makes_further_fires_count_and_not_pile_up() {
    let lab = Lab::new("schedules-skip");
    let schedules = lab.open(lab.at(1000, 0.0));
    schedules.add(new(r#""every":2,"id":"e""#), lab.at(1000, 0.0)).unwrap();
    assert!(schedules.due(lab.at(1001, 1.9)).due.is_empty());
    let first = schedules.due(lab.at(1002, 2.0)).due.remove(0);
    assert_eq!((&*first.agent_id, &*first.message), ("a", "{\"n\":1.0}"));
    for n in 2..=3 {
        assert!(
            schedules.due(lab.at(1000 + 2 * n, 2.0 * n as f64)).due.is_empty(),
            "the first one still runs"
        );
    }
    assert!(wrong(schedules.fire("e", lab.at(1007, 7.0)).unwrap_err()).contains("not over"));
    schedules.ended("e", first.run + 1, None).unwrap();
    assert_eq!(
        schedules.list(lab.at(1007, 7.0))[0]["running"],
        true,
        "another delivery's end is not its own"
    );
    schedules.ended("e", first.run, Some("why".into())).unwrap();
    let told = &schedules.list(lab.at(1007, 7.0))[0];
    assert_eq!(
        (&told["fired"], &told["skipped"], &told["failed"], &told["next"]),
        (&json!(1), &json!(2), &json!(1), &json!(1008))
    );
    assert_eq!(schedules.due(lab.at(1008, 8.0)).due.len(), 1);
    // Nobody looked for an hour: one fire, the others are counted.
    schedules.ended("e", first.run + 1, None).unwrap();
    assert_eq!(schedules.due(lab.at(4608, 3608.0)).due.len(), 1);
    assert_eq!(schedules.due(lab.at(4609, 3609.0)).due.len(), 0);
    assert_eq!(schedules.list(lab.at(4609, 3609.0))[0]["skipped"], 2 + 1799);
}

#[test]
fn a_clock_that_is_set_makes_no_burst() {
    let lab = Lab::new("schedules-clock");
    let noon = 12 * 3600;
    let schedules = lab.open(lab.at(noon, 0.0));
    schedules.add(new(r#""every":60,"id":"e""#), lab.at(noon, 0.0)).unwrap();
    schedules.add(new(r#""daily":"12:30","id":"d""#), lab.at(noon, 0.0)).unwrap();
    let fired = |wall: i64, steady: f64| {
        let due = schedules.due(lab.at(wall, steady)).due;
        due.iter().for_each(|due| schedules.ended(&due.id, due.run, None).unwrap());
        due.into_iter().map(|due| due.id).collect::<Vec<_>>()
    };
    assert_eq!(fired(noon + 3600 + 1, 1.0), ["d"], "forward by an hour, over 12:30");
    assert_eq!(fired(noon + 3600 + 2, 2.0), [""; 0]);
    assert_eq!(fired(noon + 3, 3.0), [""; 0], "and back again");
    assert_eq!(fired(noon + 1801, 59.0), [""; 0], "12:30 has been");
    assert_eq!(fired(noon + 1802, 60.0), ["e"]);
    assert_eq!(fired(noon + DAY + 1800, 61.0), ["d"]);
    assert_eq!(fired(noon + 400 * DAY, 62.0), ["d"], "far ahead");
    assert_eq!(fired(noon + 2 * DAY, 63.0), [""; 0], "and set right");
    assert_eq!(fired(noon + 2 * DAY + 1800, 64.0), ["d"]);
}

#[test]
fn what_was_missed_happens_once_if_it_is_to_be_caught_up() {
    let lab = Lab::new("schedules-missed");
    let before = lab.open(lab.at(1000, 0.0));
    for (kind, value) in [("every", "10"), ("daily", "\"01:00\""), ("at", "2000")] {
        for catch_up in [true, false] {
            let text = format!("\"{kind}\":{value},\"catch_up\":{catch_up},\"id\":\"{kind}-{catch_up}\"");
            before.add(new(&text), lab.at(1000, 0.0)).unwrap();
        }
    }
    drop(before);
    let after = lab.open(lab.at(5004, 0.0));
    let found = after.due(lab.at(5004, 0.0));
    let ids: Vec<&str> = found.due.iter().map(|due| &*due.id).collect();
    assert_eq!(ids, ["at-true", "daily-true", "every-true"]);
    assert_eq!(found.missed.len(), 1, "an at that is not caught up is gone");
    assert!(after.due(lab.at(5004, 0.1)).due.is_empty());
    assert_eq!(after.due(lab.at(5010, 6.0)).due[0].id, "every-false", "in its old step");
    // Killed in the middle of the deliveries: an at and a daily do not happen again.
    drop(after);
    let again = lab.open(lab.at(5012, 0.0));
    let ids: Vec<String> = again.due(lab.at(5012, 0.0)).due.into_iter().map(|due| due.id).collect();
    assert_eq!(ids, [""; 0]);
    assert_eq!(again.list(lab.at(5012, 0.0)).len(), 4);
}

#[test]
fn an_at_is_gone_when_its_delivery_is_over() {
    let lab = Lab::new("schedules-at");
    let schedules = lab.open(lab.at(1000, 0.0));
    schedules.add(new(r#""at":1001.5"#), lab.at(1000, 0.0)).unwrap();
    assert!(schedules.due(lab.at(1001, 1.0)).due.is_empty());
    let due = schedules.due(lab.at(1002, 2.0)).due.remove(0);
    assert_eq!(schedules.list(lab.at(1002, 2.0))[0]["next"], Value::Null);
    schedules.ended(&due.id, due.run, None).unwrap();
    assert!(schedules.list(lab.at(1002, 2.0)).is_empty());
    assert!(lab.open(lab.at(1003, 0.0)).list(lab.at(1003, 0.0)).is_empty());
}

#[test]
fn what_is_changed_is_there_again_and_an_old_mark_is_not_taken_for_a_new_one() {
    let lab = Lab::new("schedules-edit");
    let now = lab.at(1000, 0.0);
    let schedules = lab.open(now);
    assert_eq!(schedules.add(new(r#""every":5.5"#), now).unwrap()["id"], "s1");
    let edit = |text: &str| schedules.edit(serde_json::from_str(text).unwrap(), now);
    let told = edit(r#"{"id":"s1","daily":"23:59","message":null,"catch_up":true}"#).unwrap();
    assert_eq!((&told["daily"], &told["message"], told.get("every")), (&json!("23:59"), &json!(null), None));
    assert!(wrong(edit(r#"{"id":"s2"}"#).unwrap_err()).contains("no schedule \"s2\""));
    assert_eq!(lab.open(now).list(now)[0]["daily"], "23:59");
    schedules.cancel("s1", now).unwrap();
    assert!(wrong(schedules.cancel("s1", now).unwrap_err()).contains("no schedule"));
    // One of the same name fires; then it is made anew.
    schedules.add(new(r#""at":1001,"id":"x""#), now).unwrap();
    schedules.due(lab.at(1001, 1.0));
    schedules.cancel("x", lab.at(1001, 1.0)).unwrap();
    schedules.add(new(r#""at":1009,"id":"x""#), lab.at(1002, 2.0)).unwrap();
    assert_eq!(lab.open(lab.at(1003, 0.0)).list(lab.at(1003, 0.0))[0]["next"], 1009);
}

#[test]
fn what_is_wrong_is_named_and_what_is_too_much_refused() {
    let lab = Lab::new("schedules-wrong");
    let now = lab.at(1000, 0.0);
    let schedules = lab.open(now);
    for (text, part) in [
        (r#""catch_up":true"#, "none is given"),
        (r#""every":2,"daily":"01:00""#, "more than one"),
        (r#""every":0.5"#, "not 0.5"),
        (r#""every":1e9"#, "every"),
        (r#""every":-1"#, "every"),
        (r#""daily":"24:00""#, "24:00"),
        (r#""daily":"7:00""#, "HH:MM"),
        (r#""daily":"é:00""#, "HH:MM"),
        (r#""at":1000"#, "in the future"),
        (r#""at":1e15"#, "at"),
        (r#""every":2,"id":"a/b""#, "a/b"),
        (r#""every":2,"id":"""#, "id must"),
    ] {
        let why = wrong(schedules.add(new(text), now).unwrap_err());
        assert!(why.contains(part), "{text}: {why}");
    }
    let huge = format!("{{\"agent_id\":\"a\",\"message\":\"{}\",\"every\":9}}", "x".repeat(MESSAGE_BYTES));
    assert!(wrong(schedules.add(serde_json::from_str(&huge).unwrap(), now).unwrap_err()).contains("bytes"));
    schedules.add(new(r#""every":2,"id":"twice""#), now).unwrap();
    assert!(wrong(schedules.add(new(r#""every":2,"id":"twice""#), now).unwrap_err()).contains("already"));
    for text in ["", "[1]", "{}", r#"[{"id":"a"}]"#] {
        fs::write(lab.dir.path().join("schedules.json"), text).unwrap();
        let opened = Schedules::open(lab.dir.path(), utc, now, Arc::new(Syncer::new(Fsync::Never))).unwrap();
        assert!(opened.1.is_some() && opened.0.list(now).is_empty(), "{text}");
    }
}

#[test]
fn there_is_an_end_to_their_number() {
    let lab = Lab::new("schedules-many");
    let now = lab.at(1000, 0.0);
    let schedules = lab.open(now);
    let text = (0..MOST).map(|n| {
        format!(r#"{{"id":"m{n}","agent_id":"a","message":1,"every":9.0,"catch_up":false,"since":1}}"#)
    });
    let text = format!("[{}]", text.collect::<Vec<_>>().join(","));
    fs::write(lab.dir.path().join("schedules.json"), text).unwrap();
    drop(schedules);
    let full = lab.open(now);
    assert_eq!(full.list(now).len(), MOST);
    assert!(wrong(full.add(new(r#""every":9"#), now).unwrap_err()).contains("256"));
}

#[test]
fn one_that_makes_no_sense_is_named_and_the_others_go_on() {
    let lab = Lab::new("schedules-odd");
    let now = lab.at(1000, 0.0);
    let one = |id: &str, when: &str| {
        format!(r#"{{"id":"{id}","agent_id":"a","message":1,{when},"catch_up":false,"since":1}}"#)
    };
    let text = format!("[{},{}]", one("good", r#""every":9.0"#), one("odd", r#""daily":"25:00""#));
    fs::write(lab.dir.path().join("schedules.json"), &text).unwrap();
    let opened = Schedules::open(lab.dir.path(), utc, now, Arc::new(Syncer::new(Fsync::Never))).unwrap();
    let why = opened.1.unwrap();
    assert!(why.contains("\"odd\"") && why.contains("25:00") && why.contains("damaged"), "{why}");
    assert_eq!(opened.0.list(now).len(), 1);
    assert_eq!(lab.open(now).list(now)[0]["id"], "good");
    assert_eq!(fs::read_to_string(lab.dir.path().join("schedules.json.damaged")).unwrap(), text);
}
