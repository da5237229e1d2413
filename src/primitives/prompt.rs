//! The operator's prompt, with only the blocks that are for agents.

const OPEN: &str = "<!-- role:";
const CLOSE: &str = "<!-- /role -->";

/// `text` without the blocks of roles other than `agent`; the markers go too, text outside stays.
/// A block without its end reaches to the end of the text.
pub fn for_agents(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        kept.push_str(&rest[..start]);
        let after = &rest[start + OPEN.len()..];
        let Some(end) = after.find("-->") else {
            kept.push_str(&rest[start..]);
            return kept;
        };
        let role = after[..end].trim();
        let body = &after[end + 3..];
        let (block, behind) = body.split_once(CLOSE).unwrap_or((body, ""));
        if role == "agent" {
            kept.push_str(block);
        }
        rest = behind;
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_the_blocks_for_agents_stay() {
        let text = "a<!-- role:agent -->b<!-- /role -->c<!-- role:manager -->d<!-- /role -->e";
        assert_eq!(super::for_agents(text), "abce");
        assert_eq!(super::for_agents("x<!-- role:manager -->y"), "x");
        assert_eq!(super::for_agents("plain"), "plain");
    }
}
