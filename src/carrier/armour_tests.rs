use super::*;

const CARRIER: &str = "abc def";

fn block(carrier: &str) -> String {
    format!("{BEGIN}\nversion: 1\nmodel_fingerprint: ff\nsettings: TOT=65536; TOPK=0\n\n{carrier}\n{END}\n")
}

/// The carrier that is read, however the source hands out the text.
fn read(text: &str) -> Result<(Header, String), CarrierError> {
    let mut all = Vec::new();
    for size in [1, 2, 3, 7, 100_000] {
        let mut source = std::io::BufReader::with_capacity(size, text.as_bytes());
        let mut carrier = Vec::new();
        all.push(Reader::begin(&mut source).and_then(|(header, reader)| {
            reader.carrier(&mut |text, _| {
                carrier.extend_from_slice(text);
                Ok(true)
            })?;
            Ok((header, String::from_utf8_lossy(&carrier).into_owned()))
        }));
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{text:?}: {all:?}");
    all.remove(0)
}

#[test]
fn what_stands_around_and_between_does_not_matter() {
    let plain = block(CARRIER);
    for text in [
        plain.clone(),
        plain.replace('\n', "\r\n"),
        plain.replace('\n', "\r"),
        format!("Hello,\n{}\n\n  {plain}bye", "x".repeat(10_000)),
        plain.replace("-----\n", "-----  \n"),
        plain.replace("\n\n", "\n\n\n\n"),
        plain.replace("\n\n", "\n"),
        plain.replace("def", "d\ne\nf"),
        plain.replace("version: 1\n", "x: y\nversion:1\n"),
        plain.trim_end().to_owned(),
        block("abc\n def"),
        block("abc \ndef"),
        block("abc\n \ndef"),
    ] {
        let (header, carrier) = read(&text).unwrap();
        assert_eq!(
            (&*header.fingerprint, header.shape, &*carrier),
            ("ff", Shape::default(), CARRIER),
            "{text}"
        );
    }
    let long = "ab ".repeat(5000);
    assert_eq!(read(&block(&long).replace("\n\n", "\n")).unwrap().1, long);
    assert_eq!(read(&block("   a")).unwrap().1, "   a");
}

#[test]
fn each_malformation_has_its_own_error() {
    let plain = block(CARRIER);
    for (text, what) in [
        (String::new(), "no BEGIN"),
        (plain.replace("BEGIN", "B"), "no BEGIN"),
        (format!("x {plain}"), "no BEGIN"),
        (plain.replace("END", "E"), "no END"),
        (plain.replace("version: 1\n", ""), "no version"),
        (plain.replace("version: 1", "version: x"), "version is no number"),
        (plain.replace("version: 1", "version: 2"), "unsupported version: \"2\""),
        (plain.replace("model_", ""), "no model_fingerprint"),
        (plain.replace("settings: TOT=65536; TOPK=0", "settings:"), "no settings"),
        (plain.replace("version: 1", "version: 1\nfoo"), "no model_fingerprint"),
        (plain.replace("65536", "65535"), "TOT is 65536 here, not \"65535\""),
        (plain.replace("TOPK=0", "TOPK=3"), "TOPK is 0 here, not \"3\""),
        (plain.replace("TOT=65536; ", ""), "TOT is missing"),
        (plain.replace("TOPK=0", "TOPK=0; x"), "a setting has no ="),
        (plain.replace("TOPK=0", "TOPK=0; TEMPERATURE=x"), "TEMPERATURE is no number"),
        (plain.replace("TOPK=0", "TOPK=0; TEMPERATURE=-1"), "the temperature is above 0"),
        (plain.replace(BEGIN, &format!("{BEGIN}\n{BEGIN}")), "no version"),
        (plain.replace("\n\n", &"\nx: y".repeat(80)), "no END"),
    ] {
        match read(&text) {
            Err(why) => assert!(why.to_string().contains(what), "{text}: {why}"),
            Ok(read) => assert_eq!(what, "no END", "{text}: {read:?}"),
        }
    }
}

#[test]
fn written_in_lines_of_one_length() {
    for (wrap, lines) in [
        (0, "abcdefgh"),
        (3, "abc\ndef\ngh"),
        (4, "abcd\nefgh"),
        (8, "abcdefgh"),
        (1, "a\nb\nc\nd\ne\nf\ng\nh"),
    ] {
        for part in [1, 3, 8] {
            let mut out = Vec::new();
            let header = Header { fingerprint: "ff".into(), shape: Shape::default() };
            let mut writer = Writer::begin(&mut out, &header, wrap).unwrap();
            for part in b"abcdefgh".chunks(part) {
                writer.write(part).unwrap();
            }
            assert_eq!(writer.end().unwrap(), (8, block(lines).len() as u64));
            assert_eq!(String::from_utf8(out).unwrap(), block(lines));
        }
    }
}
