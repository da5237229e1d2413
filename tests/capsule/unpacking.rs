//! What stands in the destination already, and what may never be made there.

use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::process::Command;

use super::support::{files_below, Scratch};

fn packed() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("dir/a.txt", "a\n");
    scratch.file("dir/sub/deep/b.txt", "b\n");
    scratch.file("dir/sub/c.txt", "c\n");
    scratch.run(&["pack", "dir", "--out", "c.txt"]).ok();
    scratch
}

#[test]
fn a_file_that_is_there_is_kept_and_nothing_else_written() {
    let scratch = packed();
    scratch.file("out/sub/deep/b.txt", "mine");
    let refused = scratch.run(&["unpack", "c.txt", "--out", "out"]).refused();
    assert!(refused.ends_with("out/sub/deep/b.txt: it is there already (--force replaces it)"), "{refused}");
    assert_eq!(files_below(&scratch.at("out")), [scratch.at("out/sub/deep/b.txt")]);
    assert_eq!(std::fs::read(scratch.at("out/sub/deep/b.txt")).unwrap(), b"mine");

    scratch.run(&["unpack", "c.txt", "--out", "out", "--force"]).ok();
    assert_eq!(std::fs::read(scratch.at("out/sub/deep/b.txt")).unwrap(), b"b\n");
}

#[test]
fn a_link_in_the_destination_is_not_followed() {
    for link in ["out/sub", "out/sub/deep", "out/a.txt"] {
        let scratch = packed();
        scratch.file("elsewhere/kept", "");
        std::fs::create_dir_all(scratch.at(link).parent().unwrap()).unwrap();
        symlink(scratch.at("elsewhere"), scratch.at(link)).unwrap();
        for words in
            [&["unpack", "c.txt", "--out", "out"][..], &["unpack", "c.txt", "--out", "out", "--force"]]
        {
            let replaced = link == "out/a.txt" && words.contains(&"--force");
            let ran = scratch.run(words);
            if replaced {
                ran.ok(); // the link was replaced, and not what it leads to
                assert!(!scratch.at(link).symlink_metadata().unwrap().is_symlink());
            } else {
                ran.refused();
            }
            assert_eq!(files_below(&scratch.at("elsewhere")), [scratch.at("elsewhere/kept")], "{link}");
        }
    }
}

#[test]
fn a_dangling_link_is_not_written_through() {
    let scratch = packed();
    std::fs::create_dir(scratch.at("out")).unwrap();
    symlink(scratch.at("target"), scratch.at("out/a.txt")).unwrap();
    scratch.run(&["unpack", "c.txt", "--out", "out"]).refused();
    scratch.run(&["unpack", "c.txt", "--out", "out", "--force"]).ok();
    assert!(!scratch.at("target").exists());
}

#[test]
fn a_hard_link_is_replaced_and_its_other_name_kept() {
    let scratch = packed();
    scratch.file("other", "other");
    std::fs::create_dir(scratch.at("out")).unwrap();
    std::fs::hard_link(scratch.at("other"), scratch.at("out/a.txt")).unwrap();
    scratch.run(&["unpack", "c.txt", "--out", "out", "--force"]).ok();
    assert_eq!(std::fs::read(scratch.at("other")).unwrap(), b"other");
}

#[test]
fn a_file_where_a_directory_has_to_be_stops_it_all() {
    let scratch = packed();
    scratch.file("out/sub", "");
    let refused = scratch.run(&["unpack", "c.txt", "--out", "out", "--force"]).refused();
    assert!(refused.ends_with("a file stands where a directory has to be"), "{refused}");
    assert_eq!(files_below(&scratch.at("out")), [scratch.at("out/sub")]);
}

#[test]
fn a_directory_where_a_file_has_to_be_stops_it_all() {
    let scratch = packed();
    scratch.file("out/sub/c.txt/kept", "");
    scratch.run(&["unpack", "c.txt", "--out", "out", "--force"]).refused();
    assert_eq!(files_below(&scratch.at("out")), [scratch.at("out/sub/c.txt/kept")]);
}

#[test]
fn the_destination_may_be_a_link_and_is_made_with_what_is_above_it() {
    let scratch = packed();
    std::fs::create_dir(scratch.at("real")).unwrap();
    symlink(scratch.at("real"), scratch.at("link")).unwrap();
    let printed = scratch.run(&["unpack", "c.txt", "--out", "link"]).ok();
    assert!(printed.contains(&format!("{}\n", scratch.at("real/a.txt").display())), "{printed}");
    scratch.run(&["unpack", "c.txt", "--out", "x/y/z"]).ok();
    assert_eq!(files_below(&scratch.at("x")).len(), 3);
}

#[test]
fn no_file_is_made_executable_or_setuid() {
    let scratch = packed();
    std::fs::set_permissions(scratch.at("dir/a.txt"), PermissionsExt::from_mode(0o6755)).unwrap();
    scratch.run(&["pack", "dir", "--out", "c.txt"]).ok();
    scratch.run(&["unpack", "c.txt", "--out", "out"]).ok();
    for file in files_below(&scratch.at("out")) {
        assert_eq!(file.metadata().unwrap().mode() & 0o7111, 0, "{}", file.display());
    }
}

#[test]
fn a_failure_on_the_way_takes_away_what_was_written() {
    let scratch = packed();
    scratch.file("dir/sub/z", vec![b'z'; 4096]);
    scratch.run(&["pack", "dir", "--out", "c.txt"]).ok();
    scratch.file("out/mine", "");
    // No file may grow beyond a kilobyte or two, and `z` is the third of four.
    let script = "ulimit -f 2; trap '' XFSZ; exec \"$0\" capsule unpack c.txt --out out/new";
    let program = env!("CARGO_BIN_EXE_agentcontainer");
    let output =
        Command::new("sh").args(["-c", script, program]).current_dir(scratch.at("")).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("sub/z: File too large"), "{complaint}");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(files_below(&scratch.at("out")), [scratch.at("out/mine")]);
    assert!(!scratch.at("out/new").exists());
}
