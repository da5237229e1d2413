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

/// Runs the program in a shell that lets no file grow beyond 512 or 1024 bytes a block.
fn limited(scratch: &Scratch, first: &str, words: &str) -> std::process::Output {
    let program = env!("CARGO_BIN_EXE_agentcontainer");
    let script = format!("{first}ulimit -f 4; exec '{program}' capsule {words}");
    Command::new("sh").args(["-c", &script]).current_dir(scratch.at("")).output().unwrap()
}

fn large() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("dir/a.txt", "new\n");
    scratch.file("dir/deep/b.txt", "new\n");
    scratch.file("dir/deep/z.bin", vec![7; 64 << 10]);
    scratch.run(&["pack", "dir", "--out", "c.txt"]).ok();
    scratch.file("out/a.txt", "old");
    scratch.file("out/deep/b.txt", "old");
    scratch
}

#[test]
fn what_force_would_replace_is_as_it_was_if_writing_fails() {
    let scratch = large();
    // The limit's signal is ignored, so that writing fails, as on a full disk.
    let ran = limited(&scratch, "trap '' XFSZ; ", "unpack c.txt --out out --force");
    let why = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success() && why.starts_with("unpacking to out/deep/z.bin: File too large"), "{why}");
    assert_eq!(files_below(&scratch.at("out")), [scratch.at("out/a.txt"), scratch.at("out/deep/b.txt")]);
    for name in ["out/a.txt", "out/deep/b.txt"] {
        assert_eq!(std::fs::read(scratch.at(name)).unwrap(), b"old", "{name}");
    }
    let ran = limited(&scratch, "trap '' XFSZ; ", "unpack c.txt --out fresh/place");
    assert!(!ran.status.success() && !scratch.at("fresh").exists());
    scratch.run(&["unpack", "c.txt", "--out", "out", "--force"]).ok();
    assert_eq!(std::fs::read(scratch.at("out/deep/b.txt")).unwrap(), b"new\n");
    assert_eq!(files_below(&scratch.at("out")).len(), 3, "no hidden file stays");
}

#[test]
fn a_process_that_is_killed_leaves_no_cut_file_under_its_name() {
    let scratch = large();
    let ran = limited(&scratch, "", "unpack c.txt --out out --force");
    assert_eq!(ran.status.code(), None, "the limit's signal ends it");
    assert!(!scratch.at("out/deep/z.bin").exists());
    assert_eq!(std::fs::read(scratch.at("out/a.txt")).unwrap(), b"old");
}

#[test]
fn what_is_packed_or_made_is_there_whole_or_as_it_was() {
    let scratch = large();
    scratch.file("big", vec![7; 64 << 10]);
    scratch.file("old.txt", "old");
    for out in ["old.txt", "new.txt"] {
        let ran = limited(&scratch, "trap '' XFSZ; ", &format!("pack big --out {out}"));
        let why = String::from_utf8_lossy(&ran.stderr);
        assert!(why.starts_with(&format!("{out}: writing the capsule: File too large")), "{why}");
    }
    assert_eq!(std::fs::read(scratch.at("old.txt")).unwrap(), b"old");
    assert!(!scratch.at("new.txt").exists());
    let own = scratch.run(&["pack", "big", "--out", "./big"]).refused();
    assert_eq!(own, "--out ./big would overwrite big");
    assert_eq!(std::fs::metadata(scratch.at("big")).unwrap().len(), 64 << 10);

    scratch.keys("k");
    let pair = || ["k.key", "k.pub"].map(|name| std::fs::read(scratch.at(name)).unwrap());
    let before = pair();
    for words in [
        "keys generate --private-key n.key --public-key n.pub",
        "keys generate --private-key k.key --public-key none/k.pub --force",
        "keys generate --private-key n.key --public-key none/n.pub",
        "keys generate --private-key k.key --public-key k.pub --force",
    ] {
        assert!(!limited(&scratch, "trap '' XFSZ; ulimit -f 0; ", words).status.success(), "{words}");
    }
    assert_eq!(pair(), before);
    scratch.run(&["keys", "generate", "--private-key", "n.key", "--public-key", "none/n.pub"]).refused();
    assert!(!scratch.at("n.key").exists());
    let hidden = files_below(&scratch.at(""))
        .into_iter()
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with('.'));
    assert_eq!(hidden.count(), 0);
}
