//! Whatever is packed comes out again, and whatever is changed on the way does not.

use std::collections::BTreeMap;

use agentcontainer::capsule::bundle::Writer;
use agentcontainer::capsule::pack::Content;
use agentcontainer::capsule::{
    self, HmacKey, PackOptions, Payload, Policy, PrivateKey, Registry, Signing, TrustStatus,
};

/// The same numbers in every run (SplitMix64); a failure names its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound as u64) as usize
    }

    fn bytes(&mut self, longest: usize) -> Vec<u8> {
        (0..self.below(longest)).map(|_| self.roll() as u8).collect()
    }

    fn name(&mut self) -> String {
        let letters: Vec<char> = "abcXYZ09.-_ äß漢字😀'\"$*:\u{301}\n".chars().collect();
        let name: String = (0..1 + self.below(12)).map(|_| letters[self.below(letters.len())]).collect();
        if name.trim() != name || name.contains('\n') || name.trim_matches('.').is_empty() {
            return format!("f{}", self.below(1000));
        }
        name
    }
}

fn packed(content: &Content, options: &PackOptions) -> String {
    let mut text = Vec::new();
    capsule::pack(content, options, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn options(dice: &mut Dice) -> PackOptions {
    PackOptions {
        created_by: dice.name(),
        task_id: dice.name(),
        capsule_type: dice.name(),
        requested_capabilities: (0..dice.below(3)).map(|_| dice.name()).collect(),
        policy_hints: BTreeMap::from([(dice.name(), true)]),
        ..PackOptions::default()
    }
}

#[test]
fn files_and_directories_come_out_as_they_went_in() {
    for seed in 0..100 {
        let mut dice = Dice(seed);
        let options = options(&mut dice);
        let name = dice.name();
        let bytes = dice.bytes(if seed % 20 == 0 { 200_000 } else { 300 });
        let text = packed(&Content::file(&name, bytes.clone()).unwrap(), &options);
        let opened = capsule::open(&text, &Policy::default(), None).unwrap();
        assert_eq!(opened.payload, Payload::File { name, bytes }, "seed {seed}");
        let manifest = opened.manifest.unwrap();
        assert_eq!(manifest.requested_capabilities, options.requested_capabilities, "seed {seed}");
        assert_eq!((manifest.files, &manifest.created_by), (1, &options.created_by), "seed {seed}");
        assert_eq!(opened.text, text, "seed {seed}");

        let files: BTreeMap<String, Vec<u8>> = (0..dice.below(8))
            .map(|n| (format!("{n}{}/{}", dice.name(), dice.name()), dice.bytes(100)))
            .collect();
        let mut writer = Writer::default();
        for (path, bytes) in &files {
            writer.add(path, bytes).unwrap();
        }
        let text = packed(&Content::bundle(writer), &options);
        let opened = capsule::open(&text, &Policy::default(), None).unwrap();
        assert_eq!(opened.payload, Payload::Bundle(files.into_iter().collect()), "seed {seed}");
    }
}

#[test]
fn one_changed_character_of_a_signed_capsule_is_noticed() {
    let mut dice = Dice(7);
    let key = PrivateKey::generate().unwrap();
    let registry = format!(
        r#"{{"keys":[{{"key_id":"k","fingerprint":"{}","public_key":"{}"}}]}}"#,
        key.public().fingerprint(),
        key.public().text()
    );
    let registry = Registry::parse(&registry, std::path::Path::new(".")).unwrap();
    let policy = Policy { require_signature_registry: true, ..Policy::default() };
    let signing = Signing::Ed25519 { key: Box::new(key), inline: true };
    let options = PackOptions { signing, key_id: Some("k".into()), ..options(&mut dice) };
    let text = packed(&Content::file("a", dice.bytes(200)).unwrap(), &options);
    let opened = capsule::open(&text, &policy, Some(&registry)).unwrap();
    assert_eq!(opened.signer.as_ref().unwrap().trust, TrustStatus::Trusted);

    for round in 0..500 {
        let at = dice.below(text.len());
        let with = char::from(b'!' + dice.below(94) as u8);
        if !text.is_char_boundary(at) || text[at..].starts_with(with) {
            continue;
        }
        let mut changed = text.clone();
        let end = at + text[at..].chars().next().unwrap().len_utf8();
        changed.replace_range(at..end, &with.to_string());
        if let Ok(reopened) = capsule::open(&changed, &policy, Some(&registry)) {
            // White space that is trimmed away, or what stands behind END: nothing that counts.
            assert_eq!(reopened.payload, opened.payload, "round {round}: {changed}");
            assert_eq!(
                reopened.headers.iter().collect::<Vec<_>>(),
                opened.headers.iter().collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn no_damage_to_a_text_panics() {
    let mut dice = Dice(11);
    let signing = Signing::Hmac(HmacKey::new(b"k").unwrap());
    let options = PackOptions { signing, ..options(&mut dice) };
    let mut writer = Writer::default();
    writer.add("a/ü", b"x").unwrap();
    let text = packed(&Content::bundle(writer), &options);
    let policy = Policy::default();
    for _ in 0..1500 {
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        for _ in 0..1 + dice.below(3) {
            let (one, two) = (dice.below(lines.len()), dice.below(lines.len()));
            match dice.below(5) {
                0 => lines.swap(one, two),
                1 if lines.len() > 2 => drop(lines.remove(one)),
                2 => lines.insert(one, lines[two].clone()),
                3 => {
                    let cut = dice.below(lines[one].len() + 1);
                    let cut = (0..=cut).rev().find(|at| lines[one].is_char_boundary(*at)).unwrap_or(0);
                    lines[one].truncate(cut);
                }
                _ => lines[one]
                    .insert_str(0, ["> ", "\u{feff}", "=", "-----PAYLOAD-----", "\r"][dice.below(5)]),
            }
        }
        let text = lines.join("\n");
        let _ = capsule::open(&text, &policy, None); // refused or not, it answers
        let keys = capsule::Keys::default();
        let report = capsule::scan::scan(&capsule::normalized(&text), &policy, &keys);
        assert!(report.findings.iter().all(|finding| finding.start <= finding.end));
    }
}
