//! Addresses: reading one, and finding the one that a redirect means (RFC 3986, section 5.2).

use ureq::http::uri::Scheme;
use ureq::http::Uri;

/// The longest address, in bytes.
const MAX_BYTES: usize = 16 * 1024;

/// Reads an absolute http or https address. The fragment is dropped, which is never sent; spaces and
/// characters beyond ASCII in path and query are percent-encoded.
///
/// # Errors
/// The end of a sentence that begins with "the address" and says what is wrong.
pub fn parse(text: &str) -> Result<Uri, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("has more than {MAX_BYTES} bytes"));
    }
    if text.chars().any(char::is_control) {
        return Err("contains a line end or another control character".to_owned());
    }
    let text = without_fragment(text);
    let other = has_scheme(text)
        && !["http:", "https:"]
            .iter()
            .any(|known| text.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known)));
    if other {
        return Err("is neither http:// nor https://; only such addresses are asked".to_owned());
    }
    let uri: Uri = encoded(text).parse().map_err(|error| format!("cannot be read ({error})"))?;
    if uri.scheme() != Some(&Scheme::HTTP) && uri.scheme() != Some(&Scheme::HTTPS) {
        return Err("does not begin with http:// or https://; only such addresses are asked".to_owned());
    }
    let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
        return Err("names no host".to_owned());
    };
    if authority.as_str().contains('@') {
        return Err("has a user and password in it; they go into an Authorization header".to_owned());
    }
    if authority.as_str().len() > authority.host().len() && authority.port_u16().is_none() {
        return Err("has a port that is no number from 0 to 65535".to_owned());
    }
    Ok(uri)
}

/// The address that `location` means in an answer from `base`.
///
/// # Errors
/// As for [`parse`].
pub fn join(base: &Uri, location: &str) -> Result<Uri, String> {
    let location = without_fragment(location.trim());
    let scheme = base.scheme_str().unwrap_or("http");
    let authority = base.authority().map_or("", |authority| authority.as_str());
    let (path, query) = match location.split_once('?') {
        Some((path, _)) => (path, &location[path.len()..]),
        None => (location, ""),
    };
    if has_scheme(location) {
        parse(location)
    } else if location.starts_with("//") {
        parse(&format!("{scheme}:{location}"))
    } else if path.starts_with('/') {
        parse(&format!("{scheme}://{authority}{}{query}", without_dots(path)))
    } else if path.is_empty() {
        let query = if query.is_empty() {
            base.query().map_or(String::new(), |old| format!("?{old}"))
        } else {
            query.to_owned()
        };
        parse(&format!("{scheme}://{authority}{}{query}", base.path()))
    } else {
        let directory = base.path().rsplit_once('/').map_or("", |(directory, _)| directory);
        parse(&format!("{scheme}://{authority}{}{query}", without_dots(&format!("{directory}/{path}"))))
    }
}

/// Scheme, host in lower case and port: what has to be equal for credentials to go along.
pub fn origin(uri: &Uri) -> (Option<&str>, String, u16) {
    let default = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
    (uri.scheme_str(), uri.host().unwrap_or("").to_ascii_lowercase(), uri.port_u16().unwrap_or(default))
}

fn without_fragment(text: &str) -> &str {
    text.split_once('#').map_or(text, |(before, _)| before)
}

fn has_scheme(text: &str) -> bool {
    text.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

/// An absolute path without its `.` and `..`.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii() && byte != b' ' {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_can_be_asked_and_nothing_else() {
        assert_eq!(parse("http://a:81/b c?ü#top").unwrap().to_string(), "http://a:81/b%20c?%C3%BC");
        assert_eq!(parse("HTTPS://A").unwrap().to_string(), "https://A/");
        assert_eq!(parse("http://[::1]:8080/x").unwrap().port_u16(), Some(8080));
        for wrong in [
            "",
            "/x",
            "a/b",
            "ftp://a/",
            "file:///etc/passwd",
            "http://",
            "http:///x",
            "http://u:p@a/",
            "http://a/\r\nX: y",
            "http://a b/",
            "http://ü/",
            "http://a:x/",
            "http://a:99999/",
            "javascript:alert(1)",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn other_schemes_are_named_as_the_reason() {
        for wrong in ["file:///etc/passwd", "ftp://a/", "file:x", "javascript:alert(1)", "/x"] {
            let why = parse(wrong).unwrap_err();
            assert!(why.contains("only such addresses are asked"), "{wrong}: {why}");
        }
        let base = parse("http://a/").unwrap();
        assert!(join(&base, "file:///x").unwrap_err().contains("only such addresses are asked"));
    }

    #[test]
    fn the_examples_of_the_rfc() {
        let base = parse("http://a/b/c/d;p?q").unwrap();
        for (location, joined) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
            ("https://x:1/y", "https://x:1/y"),
        ] {
            assert_eq!(join(&base, location).unwrap().to_string(), joined, "{location}");
        }
        assert!(join(&base, "file:///etc/passwd").is_err());
        assert!(join(&base, "http://u:p@evil/").is_err());
    }

    #[test]
    fn a_default_port_is_the_same_origin() {
        let origin_of = |text: &str| {
            let uri = parse(text).unwrap();
            let (scheme, host, port) = origin(&uri);
            (scheme.map(str::to_owned), host, port)
        };
        assert_eq!(origin_of("http://A/"), origin_of("http://a:80/x"));
        assert_ne!(origin_of("http://a/"), origin_of("https://a/"));
        assert_ne!(origin_of("http://a/"), origin_of("http://a:81/"));
    }
}
