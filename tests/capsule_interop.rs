//! Our capsule commands beside the reference implementation's: a table of cases, each run with both
//! programs in the same directory with the same content. Compared are the exit status, what is printed
//! (JSON as JSON), that a refusal is one line which names the thing and leaves nothing behind, and the
//! files made. The wording of a complaint is each program's own.
//!
//! Where ours is stricter on purpose, or in one point more patient, the case stands in
//! `capsule_interop/differences.rs`, with the reason, and both behaviours are asserted.
//!
//! The peer is `agentcapsule[signing]==0.1.0` from PyPI in an environment of its own below the build folder;
//! where it cannot be had, every test says so and passes over. With `INTEROP_OURS=/path/to/program` another
//! program takes the place of ours; the peer itself there checks the harness. `INTEROP_ONLY=word` runs the
//! cases whose name has that word.

mod support;

#[path = "capsule_interop/bundles.rs"]
mod bundles;
#[path = "capsule_interop/case.rs"]
mod case;
#[path = "capsule_interop/cross.rs"]
mod cross;
#[path = "capsule_interop/differences.rs"]
mod differences;
#[path = "capsule_interop/draft.rs"]
mod draft;
#[path = "capsule_interop/judge.rs"]
mod judge;
#[path = "capsule_interop/keys.rs"]
mod keys;
#[path = "capsule_interop/kit.rs"]
mod kit;
#[path = "capsule_interop/manifests.rs"]
mod manifests;
#[path = "capsule_interop/packing.rs"]
mod packing;
#[path = "capsule_interop/peer.rs"]
mod peer;
#[path = "capsule_interop/place.rs"]
mod place;
#[path = "capsule_interop/policies.rs"]
mod policies;
#[path = "capsule_interop/reading.rs"]
mod reading;
#[path = "capsule_interop/registries.rs"]
mod registries;
#[path = "capsule_interop/reports.rs"]
mod reports;
#[path = "capsule_interop/scanning.rs"]
mod scanning;
#[path = "capsule_interop/signatures.rs"]
mod signatures;

use case::{created_at, Case};
use kit::Kit;
use place::{Program, Ran};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use support::TempDir;

/// Both programs, and a directory for them.
struct Bench {
    peer: Program,
    ours: Program,
    kit: &'static Kit,
    dir: TempDir,
}

impl Bench {
    /// `None` where there is no peer; why has been said then.
    fn new(name: &str) -> Option<Bench> {
        let started = peer::program()?;
        let peer = Program::warm(&started.with_file_name("python"), started);
        let dir = TempDir::new(&format!("interop-{name}"));
        let ours = match other_program() {
            Some(program) => program,
            None => {
                let link = dir.path().join("agentcapsule");
                symlink(env!("CARGO_BIN_EXE_agentcontainer"), &link).unwrap();
                link
            }
        };
        let kit = Kit::get(&peer);
        Some(Bench { peer, ours: Program::Started(ours), kit, dir })
    }

    /// The case run with the peer and with ours. Packing writes the time: both must fall into one second.
    fn both(&self, case: &Case) -> (Ran, Ran) {
        let place = self.dir.path().join("box");
        let run = |program: &Program| program.run(&place, &case.entries, &case.env, &case.args);
        for _ in 0..20 {
            let pair = (run(&self.peer), run(&self.ours));
            if created_at(&pair.0).zip(created_at(&pair.1)).is_none_or(|(a, b)| a == b) {
                return pair;
            }
        }
        panic!("{}: twenty times the second turned between both runs", case.name);
    }

    /// The carrier codecs come by an issue of their own: their cases begin to count when ours lists them.
    fn has_carriers(&self) -> bool {
        let place = self.dir.path().join("codecs");
        self.ours.run(&place, &[], &[], &["codecs".into()]).stdout.contains("lmcodec-fixed")
    }

    /// Runs them all and panics with every difference there is.
    fn compare(&self, cases: Vec<Case>) {
        let only = std::env::var("INTEROP_ONLY").unwrap_or_default();
        let mut wrong = Vec::new();
        let total = cases.len();
        let carriers = self.has_carriers();
        for case in cases.into_iter().filter(|case| case.name.contains(&only)) {
            if case.carriers && !carriers {
                continue;
            }
            let (peer, ours) = self.both(&case);
            let difference = case.differences(&peer, &ours);
            if !difference.is_empty() {
                wrong.push(difference);
            }
        }
        assert!(wrong.is_empty(), "{} of {total} cases differ:\n\n{}", wrong.len(), wrong.join("\n"));
    }
}

/// What stands in the place of ours, if something does.
fn other_program() -> Option<PathBuf> {
    std::env::var_os("INTEROP_OURS").map(PathBuf::from)
}

macro_rules! tables {
    ($($test:ident: $cases:path;)*) => {$(
        #[test]
        fn $test() {
            if let Some(bench) = Bench::new(stringify!($test)) {
                bench.compare($cases(bench.kit));
            }
        }
    )*};
}

tables! {
    envelopes_are_read_alike: reading::cases;
    manifests_are_read_alike: manifests::cases;
    changed_signed_capsules_are_judged_alike: signatures::changed;
    keys_given_are_used_alike: signatures::keys_given;
    policies_are_kept_alike: policies::kept;
    policy_files_are_read_alike: policies::files;
    registries_decide_alike: registries::cases;
    bundles_are_unpacked_alike: bundles::cases;
    texts_are_scanned_alike: scanning::cases;
    files_and_directories_are_packed_alike: packing::cases;
    reports_and_events_are_alike: reports::cases;
    key_commands_are_alike: keys::cases;
}

/// The list of differences that are meant. The peer in our place does not have them.
#[test]
fn ours_differs_where_it_is_meant_to() {
    if other_program().is_some() {
        return;
    }
    if let Some(bench) = Bench::new("differences") {
        bench.compare(differences::cases(bench.kit));
    }
}

#[test]
fn what_one_packs_the_other_reads() {
    if let Some(bench) = Bench::new("cross") {
        cross::packs(&bench);
    }
}

#[test]
fn the_warm_peer_does_what_the_peer_does() {
    if let Some(bench) = Bench::new("warmth") {
        let started = peer::program().expect("the bench has it");
        cross::warmth(&bench, &Program::Started(started.into()));
    }
}

#[test]
fn keys_of_one_work_with_the_other() {
    if let Some(bench) = Bench::new("cross-keys") {
        cross::keys(&bench);
    }
}

#[test]
fn all_three_names_start_the_same_commands() {
    if other_program().is_some() {
        return;
    }
    if let Some(bench) = Bench::new("names") {
        cross::names(&bench);
    }
}
