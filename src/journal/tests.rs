use super::verify::{verify, Report, Wrong};
use super::*;
use crate::testing::TempDir;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SETTINGS: Settings = Settings { file_bytes: 1 << 20, files: 100, fsync: Fsync::Never };

fn open(dir: &TempDir, settings: Settings) -> Arc<Journal> {
    Journal::open(dir.path(), settings).unwrap()
}

/// Notes and writes so many events, one at a time, and leaves as a killed node would: without closing.
fn run(dir: &TempDir, settings: Settings, events: u64) {
    let journal = open(dir, settings);
    for n in 0..events {
        journal.note(&Event::new("test").number("n", n));
        journal.settle();
    }
}

fn checked(dir: &TempDir) -> Report {
    verify(dir.path()).unwrap().expect("a journal")
}

#[track_caller]
fn good(dir: &TempDir) -> (u64, u64) {
    let report = checked(dir);
    assert!(report.fault.is_none(), "{}", report.fault.unwrap());
    (report.files, report.lines)
}

/// File index, line and what is wrong.
#[track_caller]
fn fault(dir: &TempDir) -> (u64, Option<u64>, Wrong) {
    let fault = checked(dir).fault.expect("a fault");
    (fault.line, fault.seq, fault.wrong)
}

fn paths(dir: &TempDir) -> Vec<PathBuf> {
    files(dir.path()).unwrap().into_iter().map(|(_, path)| path).collect()
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

fn write(path: &Path, lines: &[String]) {
    fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

fn kinds(dir: &TempDir) -> Vec<String> {
    let all = paths(dir).into_iter().flat_map(|path| lines(&path));
    all.map(|line| Line::read(line.as_bytes()).unwrap().kind.into_owned()).collect()
}

#[test]
fn what_is_written_verifies_and_goes_on_over_starts() {
    let dir = TempDir::new("journal-good");
    assert!(verify(dir.path()).unwrap().is_none());
    run(&dir, SETTINGS, 5);
    assert_eq!(good(&dir), (1, 5));
    run(&dir, SETTINGS, 3);
    assert_eq!(good(&dir), (1, 8));
    let journal = open(&dir, SETTINGS);
    assert!(!journal.ended_well());
    journal.note(&Event::new("stop"));
    journal.close();
    journal.note(&Event::new("late"));
    drop(journal);
    assert_eq!(good(&dir), (1, 9));
    assert!(open(&dir, SETTINGS).ended_well());
}

#[test]
fn every_kind_of_change_is_named_with_its_place() {
    let dir = TempDir::new("journal-changed");
    run(&dir, SETTINGS, 9);
    let path = paths(&dir).remove(0);
    let whole = lines(&path);
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut changed = whole.clone();
        change(&mut changed);
        write(&path, &changed);
        let found = fault(&dir);
        write(&path, &whole);
        found
    };
    let changed = with(&|lines| lines[3] = lines[3].replace("\"n\":3", "\"n\":4"));
    assert_eq!(changed, (4, Some(4), Wrong::Changed));
    assert_eq!(
        with(&|lines| lines[0] = lines[0].replace("seq\":1", "seq\":2")),
        (1, Some(2), Wrong::Changed)
    );
    assert_eq!(with(&|lines| drop(lines.remove(4))), (5, Some(6), Wrong::Missing { from: 5, to: 5 }));
    assert_eq!(with(&|lines| drop(lines.drain(4..7))), (5, Some(8), Wrong::Missing { from: 5, to: 7 }));
    assert_eq!(with(&|lines| drop(lines.remove(0))), (1, Some(2), Wrong::Missing { from: 1, to: 1 }));
    assert_eq!(with(&|lines| lines.swap(2, 3)), (3, Some(4), Wrong::Swapped { with: 3, line: 4 }));
    assert_eq!(with(&|lines| lines.swap(0, 1)), (1, Some(2), Wrong::Swapped { with: 1, line: 2 }));
    assert_eq!(with(&|lines| lines.swap(2, 6)), (3, Some(7), Wrong::OutOfPlace(3)));
    assert_eq!(with(&|lines| lines.insert(3, lines[2].clone())), (4, Some(3), Wrong::OutOfPlace(4)));
    assert_eq!(with(&|lines| drop(lines.pop())), (8, Some(8), Wrong::CutTail { last: 8, head: 9 }));
    assert_eq!(with(&|lines| lines.clear()), (0, None, Wrong::CutTail { last: 0, head: 9 }));
    let (line, _, wrong) = with(&|lines| lines[5].push('}'));
    assert!(line == 6 && matches!(wrong, Wrong::NotALine(_)), "{wrong}");
    let (line, _, wrong) = with(&|lines| lines[5] = "x".repeat(200_000));
    assert!(line == 6 && wrong.to_string().contains("longer"), "{wrong}");
    // A line made anew, with a right hash, breaks the chain behind it, or is not the head's.
    let other = |seq: u64, lines: &[String]| {
        let before = Line::read(lines[seq as usize - 2].as_bytes()).unwrap().hash.into_owned();
        Event::new("test").number("n", 99).line(seq, "2026-05-09T00:00:00Z", &before).0.trim_end().to_owned()
    };
    assert_eq!(with(&|lines| lines[4] = other(5, lines)), (6, Some(6), Wrong::Broken));
    assert_eq!(with(&|lines| lines[8] = other(9, lines)), (9, Some(9), Wrong::NotTheHeads));
    // Half of the last line.
    let text = fs::read(&path).unwrap();
    fs::write(&path, &text[..text.len() - 20]).unwrap();
    assert_eq!(fault(&dir), (8, Some(8), Wrong::CutTail { last: 8, head: 9 }));
    fs::write(&path, text).unwrap();
    assert_eq!(good(&dir), (1, 9));
    let head = dir.path().join("meta/journal.head");
    let told = fs::read(&head).unwrap();
    fs::write(&head, "{}").unwrap();
    assert!(matches!(fault(&dir).2, Wrong::BadHead(_)));
    fs::remove_file(&head).unwrap();
    assert_eq!(fault(&dir).2, Wrong::NoHead);
    fs::write(&head, told).unwrap();
    fs::remove_dir_all(dir.path().join("journal")).unwrap();
    assert_eq!(fault(&dir).2, Wrong::CutTail { last: 0, head: 9 });
}

#[test]
fn files_are_rotated_and_the_oldest_dropped() {
    let dir = TempDir::new("journal-rotated");
    let settings = Settings { file_bytes: 4096, files: 3, ..SETTINGS };
    run(&dir, settings, 10);
    run(&dir, settings, 90);
    let report = checked(&dir);
    assert!(report.fault.is_none(), "{}", report.fault.unwrap());
    assert_eq!((report.files, report.last), (3, 100));
    assert!(report.first > 1 && report.lines == 101 - report.first);
    assert!(report.notes[0].contains(&format!("begins with seq {}", report.first)), "{:?}", report.notes);
    assert!(paths(&dir).iter().all(|path| fs::metadata(path).unwrap().len() < 8192));
    // What is dropped by somebody else is missed: whole files, first and in the middle.
    let all = paths(&dir);
    let hidden = dir.path().join("hidden");
    for (index, expected) in [(0, "the journal's head says"), (1, "dropped: lines"), (2, "cut tail")] {
        fs::rename(&all[index], &hidden).unwrap();
        let (_, _, wrong) = fault(&dir);
        assert!(wrong.to_string().contains(expected), "{index}: {wrong}");
        fs::rename(&hidden, &all[index]).unwrap();
    }
    // One file is kept where the configuration came to say so.
    run(&dir, Settings { files: 1, ..settings }, 30);
    let report = checked(&dir);
    assert!(report.fault.is_none() && report.files == 1 && report.last == 130, "{report:?}");
}

#[test]
fn a_torn_last_line_is_taken_off_and_said() {
    let dir = TempDir::new("journal-torn");
    run(&dir, SETTINGS, 3);
    let path = paths(&dir).remove(0);
    let mut text = fs::read(&path).unwrap();
    text.extend_from_slice(b"{\"seq\":4,\"time\":\"20");
    fs::write(&path, &text).unwrap();
    let report = checked(&dir);
    assert!(report.fault.is_none() && report.notes[0].contains("no end yet"), "{report:?}");
    run(&dir, SETTINGS, 1);
    assert_eq!(good(&dir), (1, 5));
    assert_eq!(kinds(&dir), ["test", "test", "test", "torn", "test"]);
    let line = lines(&path)[3].clone();
    assert!(line.contains("\"bytes\":19") && line.contains("seq\\\":4"), "{line}");
    // A whole line that lacks no more than its end is completed.
    let (next, _) = {
        let last = lines(&path)[4].clone();
        let prev = Line::read(last.as_bytes()).unwrap().hash.into_owned();
        Event::new("late").line(6, "2026-05-09T00:00:00Z", &prev)
    };
    let mut text = fs::read(&path).unwrap();
    text.extend_from_slice(next.trim_end().as_bytes());
    fs::write(&path, &text).unwrap();
    run(&dir, SETTINGS, 0);
    assert_eq!(good(&dir), (1, 7));
    assert_eq!(kinds(&dir)[5..], ["late", "torn"]);
}

#[test]
fn a_head_that_is_behind_is_brought_up() {
    let dir = TempDir::new("journal-behind");
    run(&dir, SETTINGS, 3);
    let head = dir.path().join("meta/journal.head");
    let old = fs::read(&head).unwrap();
    run(&dir, SETTINGS, 3);
    fs::write(&head, old).unwrap();
    assert_eq!(good(&dir), (1, 6));
    run(&dir, SETTINGS, 0);
    assert!(fs::read_to_string(&head).unwrap().contains("\"seq\":6"));
    assert_eq!(kinds(&dir).len(), 6, "nothing to say about it");
}

#[test]
fn what_is_missing_stays_missing_over_a_start() {
    let dir = TempDir::new("journal-cut");
    run(&dir, SETTINGS, 6);
    let path = paths(&dir).remove(0);
    let whole = lines(&path);
    write(&path, &whole[..4]);
    run(&dir, SETTINGS, 2);
    assert_eq!(fault(&dir), (1, Some(7), Wrong::Missing { from: 5, to: 6 }));
    let text = fs::read_to_string(&paths(&dir)[1]).unwrap();
    assert!(text.contains("\"kind\":\"cut\",\"from\":5,\"to\":6"), "{text}");
    // Nothing but the hole is wrong: with the lines back all is good.
    write(&path, &whole);
    assert_eq!(good(&dir), (2, 9));
    // The last line replaced by another of the same number.
    let dir = TempDir::new("journal-replaced");
    run(&dir, SETTINGS, 3);
    let path = paths(&dir).remove(0);
    let mut all = lines(&path);
    let prev = Line::read(all[1].as_bytes()).unwrap().hash.into_owned();
    all[2] = Event::new("forged").line(3, "2026-05-09T00:00:00Z", &prev).0.trim_end().to_owned();
    write(&path, &all);
    run(&dir, SETTINGS, 1);
    assert_eq!(fault(&dir), (1, Some(4), Wrong::Broken));
}

#[test]
fn a_start_finds_its_way_whatever_was_done_to_the_files() {
    type Damage<'a> = (&'a str, &'a dyn Fn(&TempDir));
    let damage: [Damage<'_>; 7] = [
        ("the directory is gone", &|dir| fs::remove_dir_all(dir.path().join("journal")).unwrap()),
        ("the head is gone", &|dir| fs::remove_file(dir.path().join("meta/journal.head")).unwrap()),
        ("the head is none", &|dir| fs::write(dir.path().join("meta/journal.head"), "x").unwrap()),
        ("the last line is none", &|dir| {
            let path = paths(dir).pop().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path, format!("{text}rubbish\n")).unwrap();
        }),
        ("the last line is changed", &|dir| {
            let path = paths(dir).pop().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path, text.replace("\"n\":5", "\"n\":6")).unwrap();
        }),
        ("nothing but zeros", &|dir| fs::write(paths(dir).pop().unwrap(), vec![0; 1 << 20]).unwrap()),
        ("changed, and no head", &|dir| {
            let path = paths(dir).pop().unwrap();
            fs::write(path, "rubbish\n").unwrap();
            fs::remove_file(dir.path().join("meta/journal.head")).unwrap();
        }),
    ];
    for (what, damage) in damage {
        let dir = TempDir::new("journal-damaged");
        run(&dir, SETTINGS, 6);
        damage(&dir);
        let before = paths(&dir).len();
        run(&dir, SETTINGS, 2);
        let report = checked(&dir);
        let all: String = paths(&dir)[before.saturating_sub(1)..]
            .iter()
            .map(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned())
            .collect();
        let noted = all.contains("\"kind\":\"cut\"") || all.contains("\"kind\":\"damaged\"");
        assert!(noted && all.contains("\"n\":1"), "{what}: {all}");
        let only_head = what.starts_with("the head");
        assert_eq!(report.fault.is_none(), only_head, "{what}: {:?}", report.fault);
        // And once more: nothing new to say.
        let count = kinds_of(&all);
        run(&dir, SETTINGS, 0);
        let again: String = paths(&dir)
            .iter()
            .map(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned())
            .collect();
        assert_eq!(kinds_of(&again), count, "{what}: {again}");
    }
}

fn kinds_of(text: &str) -> usize {
    text.matches("\"kind\":\"cut\"").count() + text.matches("\"kind\":\"damaged\"").count()
}

#[test]
fn what_cannot_be_written_is_counted_and_the_count_is_noted() {
    let dir = TempDir::new("journal-gap");
    let in_the_way = dir.path().join("journal");
    fs::write(&in_the_way, "no directory").unwrap();
    let journal = open(&dir, SETTINGS);
    for _ in 0..7 {
        journal.note(&Event::new("lost"));
        journal.settle();
    }
    let why = journal.trouble().expect("it is told");
    assert!(why.contains("opening the journal"), "{why}");
    fs::remove_file(&in_the_way).unwrap();
    until("it can write again", || fs::read_dir(&in_the_way).is_ok_and(|mut files| files.next().is_some()));
    assert!(journal.trouble().is_none(), "told once");
    journal.note(&Event::new("kept"));
    journal.close();
    assert_eq!(kinds(&dir), ["gap", "kept"]);
    let report = checked(&dir);
    assert!(report.fault.is_none() && report.notes[0].contains("could not write 7 lines"), "{report:?}");
}

#[test]
fn files_that_are_removed_under_it_are_missed_and_it_goes_on() {
    let dir = TempDir::new("journal-removed");
    let journal = open(&dir, SETTINGS);
    for _ in 0..3 {
        journal.note(&Event::new("early"));
    }
    journal.settle();
    fs::remove_dir_all(dir.path().join("journal")).unwrap();
    fs::remove_file(dir.path().join("meta/journal.head")).unwrap();
    until("it begins another file", || paths(&dir).len() == 1);
    journal.note(&Event::new("late"));
    journal.close();
    assert_eq!(kinds(&dir), ["cut", "late"]);
    assert!(checked(&dir).first == 4);
}

#[test]
fn threads_write_one_chain() {
    let dir = TempDir::new("journal-threads");
    let journal = open(&dir, Settings { file_bytes: 16384, fsync: Fsync::Interval, ..SETTINGS });
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let journal = &journal;
            scope.spawn(move || {
                for n in 0..200 {
                    journal.note(&Event::new("test").number("thread", thread).number("n", n));
                    journal.settle();
                }
            });
        }
        // While it is written.
        for _ in 0..20 {
            let report = checked(&dir);
            assert!(report.fault.is_none(), "{}", report.fault.unwrap());
        }
    });
    assert_eq!(good(&dir).1, 1600);
}

#[test]
fn refusals_are_bounded_and_those_left_out_are_counted() {
    let dir = TempDir::new("journal-refused");
    let began = Instant::now();
    let journal = open(&dir, SETTINGS);
    for _ in 0..500 {
        journal.note_refused(&Event::new("refused"));
    }
    journal.close();
    let all = lines(&paths(&dir)[0]);
    let count = |kind: &str| all.iter().filter(|line| line.contains(&format!("\"kind\":\"{kind}\""))).count();
    let left_out: u64 =
        all.iter().filter_map(|line| Line::read(line.as_bytes()).unwrap().number("count")).sum();
    assert_eq!(count("refused") as u64 + left_out, 500);
    // On a slow machine some windows pass.
    let windows = 1 + began.elapsed().as_secs() as usize;
    assert!((20..=20 * windows).contains(&count("refused")), "{}", count("refused"));
}

/// Polls, at most ten seconds.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
