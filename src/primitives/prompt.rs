//! The operator's prompt, with only the blocks that are for agents.

/// `text` without the blocks of roles other than `agent`; the markers go too, text outside stays.
///
/// Where the text is odd, less is kept: a block in a block of another role is not for agents, nor is a block of
/// another role in one of theirs; a block, or a marker, without its end reaches to the end of the text.
pub fn for_agents(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    // Of each block that is open, whether it is for agents.
    let mut open: Vec<bool> = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("<!--") {
        let is_kept = open.iter().all(|ours| *ours);
        let (before, from) = rest.split_at(start);
        let (comment, behind) = from[4..].split_once("-->").unwrap_or((&from[4..], ""));
        let word = comment.trim();
        if is_kept {
            kept.push_str(before);
        }
        match word.strip_prefix("role:") {
            Some(role) => open.push(role.trim() == "agent"),
            None if word == "/role" => {
                open.pop();
            }
            None if is_kept => kept.push_str(&from[..from.len() - behind.len()]),
            None => {}
        }
        rest = behind;
    }
    if open.iter().all(|ours| *ours) {
        kept.push_str(rest);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::for_agents;

    #[test]
    fn only_the_blocks_for_agents_stay() {
        let text = "a<!-- role:agent -->b<!-- /role -->c<!-- role:manager -->d<!-- /role -->e";
        assert_eq!(for_agents(text), "abce");
        assert_eq!(for_agents("x<!-- role:manager -->y"), "x");
        assert_eq!(for_agents("plain"), "plain");
        assert_eq!(for_agents("a <!-- a remark --> b <!-- no end"), "a <!-- a remark --> b <!-- no end");
    }

    #[test]
    fn odd_blocks_give_nothing_away() {
        let odd = [
            "a<!-- role:agent -->b<!-- role:manager -->SECRET<!-- /role -->c<!-- /role -->d",
            "ab<!-- role:manager -->SECRET<!-- role:agent -->SECRET<!-- /role -->SECRET<!-- /role -->cd",
            "ab<!--role:manager-->SECRET<!--/role-->cd",
            "ab<!--  role: manager  -->SECRET<!-- /role -->cd",
            "ab<!-- /role -->c<!-- role:manager --><!-- SECRET --><!-- /role -->d",
            "abcd<!-- role:manager SECRET",
        ];
        for text in odd {
            assert_eq!(for_agents(text), "abcd", "{text}");
        }
    }
}
