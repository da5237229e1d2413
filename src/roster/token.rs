//! Capability tokens: what the holder of a key lets an agent do, on nodes that trust the key. The agent carries
//! its token in its metadata ([`METADATA`]).
//!
//! ```json
//! {"blocks":[
//!   {"format":"agentcontainer token 1","id":"6f…","issuer":"base64","agent_id":"scout","issued_at":1780000000,
//!    "expires_at":1780003600,"nodes":["lab"],"grant":{"groups":["process"],"scopes":{"run":{"commands":["ps"]}}},
//!    "next_key":"base64","signature":"base64"},
//!   {"format":"agentcontainer token 1","id":"b1…","grant":{"capabilities":["run"]},"next_key":"base64",
//!    "signature":"base64"}],
//!  "proof":"base64"}
//! ```
//!
//! * `signature` is over the canonical JSON (ASCII form) of the block's other members: of the first block by the
//!   key that it names as `issuer`, of each further one by the private key of the block before's `next_key`.
//!   `proof` is the private key of the last block's. So whoever holds a token can add a block, which needs nothing
//!   but the token, and nobody can change, drop or swap one in the middle, or put one at another place.
//! * What a token says is what all blocks say together. A further block has none of `issuer`, `agent_id` and
//!   `issued_at`; its `expires_at`, `nodes` and `grant` may be absent, and only restrict: one that names a call or
//!   a node which the blocks before it have not, or a later end, makes the whole token none. Scopes must all be met.
//! * Blocks at the end can be cut off only by who knows the `proof` of the shorter token: who made the further
//!   block, and whoever had the token before that. A clone that was given the narrower one does not have it.
//! * `id` names a block where tokens are revoked: revoking a block's id refuses every token that holds the block.
//! * At most [`MOST_BLOCKS`] blocks, [`MOST_BYTES`] bytes, [`MOST_SECONDS`] from `issued_at` to `expires_at`, and
//!   [`MOST_NODES`] nodes a block. A member that is not known here makes a token none: it may be meant to restrict.

use super::grants::Grant;
use super::groups;
use crate::agent::manifest::check_id;
use crate::capsule::{PrivateKey, PublicKey};
use crate::wire::{self, canonical, Form};
use serde_json::{json, Map, Value};
use std::collections::BTreeSet;
use std::fmt;

/// Under which name an agent's metadata holds its token.
pub const METADATA: &str = "capability_token";
/// How many blocks a token has at most.
pub const MOST_BLOCKS: usize = 16;
/// How long a token's text is at most, bytes.
pub const MOST_BYTES: usize = 16 << 10;
/// How long a token counts at most, seconds: a year.
pub const MOST_SECONDS: i64 = 366 * 24 * 3600;
/// How many nodes a block names at most.
pub const MOST_NODES: usize = 256;

const FORMAT: &str = "agentcontainer token 1";
const ID_BYTES: usize = 64;

/// A token whose chain is whole. Whether it counts is another question.
#[derive(Clone)]
pub struct Token {
    blocks: Vec<Block>,
    issuer: PublicKey,
    agent_id: String,
    issued_at: i64,
    expires_at: i64,
    nodes: Option<BTreeSet<String>>,
    grant: Grant,
    proof: PrivateKey,
}

/// Hidden: whoever has the proof has the token.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}, …)", self.id())
    }
}

#[derive(Clone)]
struct Block {
    id: String,
    /// The whole block, with its signature.
    json: Value,
    next_key: PublicKey,
    narrowing: Narrowing,
}

/// What a block says; `None` restricts nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Narrowing {
    /// Unix seconds.
    pub expires_at: Option<i64>,
    /// Names of nodes.
    pub nodes: Option<BTreeSet<String>>,
    /// What may be called.
    pub grant: Option<Grant>,
}

impl Token {
    /// Makes a token for an agent, signed with `key`. Times are Unix seconds.
    ///
    /// # Errors
    /// Something is missing or out of its bounds; the system has no random bytes.
    pub fn issue(
        key: &PrivateKey,
        agent_id: &str,
        issued_at: i64,
        expires_at: i64,
        nodes: Option<BTreeSet<String>>,
        grant: &Grant,
    ) -> Result<Token, String> {
        let mut block = json!({
            "issuer": key.public().text(),
            "agent_id": agent_id,
            "issued_at": issued_at,
            "expires_at": expires_at,
            "grant": grant.to_json(),
        });
        if let Some(nodes) = nodes {
            block["nodes"] = nodes.into_iter().collect();
        }
        with_block(Vec::new(), block, key)
    }

    /// The same token with a further block. One that would end later than this one ends with it.
    ///
    /// # Errors
    /// It would widen, naming what it adds; it would be too long; the system has no random bytes.
    pub fn narrow(&self, narrowing: &Narrowing) -> Result<Token, String> {
        let mut block = json!({});
        if let Some(end) = narrowing.expires_at {
            block["expires_at"] = end.min(self.expires_at).into();
        }
        if let Some(nodes) = &narrowing.nodes {
            block["nodes"] = nodes.iter().cloned().collect();
        }
        if let Some(grant) = &narrowing.grant {
            block["grant"] = grant.to_json();
        }
        let blocks = self.blocks.iter().map(|block| block.json.clone()).collect();
        with_block(blocks, block, &self.proof)
    }

    /// Reads a token: its form, its bounds, its chain and its proof, nothing of whom it is for or when.
    ///
    /// # Errors
    /// What is wrong, and in which block. Never a part of the proof.
    pub fn read(text: &str) -> Result<Token, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("a token has at most {MOST_BYTES} bytes, not {}", text.len()));
        }
        let json = wire::parse(text).map_err(|wrong| format!("a token is one JSON object: {wrong}"))?;
        let members: Vec<String> = json.members().map(|member| member.key.into_owned()).collect();
        if !json.is_object() || members.iter().any(|name| name != "blocks" && name != "proof") {
            return Err("a token is an object of \"blocks\" and \"proof\", and nothing else".into());
        }
        let blocks = json.get("blocks").ok_or("the token has no \"blocks\"")?;
        let count = blocks.elements().count();
        if !(1..=MOST_BLOCKS).contains(&count) {
            return Err(format!("a token has a list of 1 to {MOST_BLOCKS} blocks, not {count}"));
        }
        let proof = json.get("proof").and_then(|proof| proof.as_str()).ok_or("the token has no \"proof\"")?;
        let proof = PrivateKey::parse(&proof).map_err(|_| "the token's \"proof\" is no private key")?;
        let mut token: Option<Token> = None;
        for (index, block) in blocks.elements().enumerate() {
            let wrong = |why: String| format!("block {} of the token {why}", index + 1);
            let signed = canonical(&block, Form::Ascii, Some("signature"));
            let value: Value = serde_json::from_str(block.raw()).map_err(|error| wrong(error.to_string()))?;
            let read = match &mut token {
                None => first_block(&value, &signed, &proof).map(|first| token = Some(first)),
                Some(token) => token.add(&value, &signed),
            };
            read.map_err(wrong)?;
        }
        let token = token.ok_or("a token has at least one block")?;
        match token.blocks.last() {
            Some(last) if proof.public() == last.next_key => Ok(token),
            _ => {
                Err("the token's proof is not the key that its last block names: blocks were cut off".into())
            }
        }
    }

    /// One line of JSON.
    pub fn text(&self) -> String {
        self.to_json().to_string()
    }

    /// As it stands in an agent's metadata.
    pub fn to_json(&self) -> Value {
        let blocks: Vec<Value> = self.blocks.iter().map(|block| block.json.clone()).collect();
        json!({"blocks": blocks, "proof": self.proof.text()})
    }

    /// The id of its first block, by which all that was made from it is revoked.
    pub fn id(&self) -> &str {
        self.blocks.first().map_or("", |block| &block.id)
    }

    /// The ids of its blocks.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().map(|block| block.id.as_str())
    }

    /// The key that signed its first block.
    pub fn issuer(&self) -> &PublicKey {
        &self.issuer
    }

    /// Whose it is.
    pub fn agent_id(&self) -> &str {
        &self.agent_id
    }

    /// Unix seconds.
    pub fn issued_at(&self) -> i64 {
        self.issued_at
    }

    /// Unix seconds; the earliest that a block says.
    pub fn expires_at(&self) -> i64 {
        self.expires_at
    }

    /// On which nodes it counts; none named: on each that trusts its key.
    pub fn nodes(&self) -> Option<&BTreeSet<String>> {
        self.nodes.as_ref()
    }

    /// What all its blocks say together.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// What each block says, with its id.
    pub fn says(&self) -> impl Iterator<Item = (&str, &Narrowing)> {
        self.blocks.iter().map(|block| (block.id.as_str(), &block.narrowing))
    }

    /// Takes a further block, which must be signed with the key that the last one names and may only restrict.
    fn add(&mut self, value: &Value, signed: &str) -> Result<(), String> {
        let members =
            members(value, &["format", "id", "expires_at", "nodes", "grant", "next_key", "signature"])?;
        let key = self.blocks.last().map(|block| block.next_key).ok_or("is the first")?;
        let block = read_block(value, members, signed, &key)?;
        if self.ids().any(|id| id == block.id) {
            return Err(format!("has the id {:?}, which another block has", block.id));
        }
        let Narrowing { expires_at, nodes, grant } = &block.narrowing;
        if let Some(end) = expires_at {
            if *end > self.expires_at {
                return Err("widens: it ends later than the block before".into());
            }
            self.expires_at = *end;
        }
        if let Some(nodes) = nodes {
            let known = |name: &&String| self.nodes.as_ref().is_none_or(|known| known.contains(*name));
            if let Some(odd) = nodes.iter().find(|name| !known(name)) {
                return Err(format!("widens: it names the node {odd:?}, the block before does not"));
            }
            self.nodes = Some(nodes.clone());
        }
        if let Some(grant) = grant {
            if let Some(odd) = grant.beyond(&self.grant) {
                return Err(format!("widens: it grants {odd:?}, the block before does not"));
            }
            self.grant = self.grant.and(grant);
        }
        self.blocks.push(block);
        Ok(())
    }
}

/// Signs a block, puts it behind others and reads the whole: what is made here can be read there.
fn with_block(mut blocks: Vec<Value>, mut block: Value, key: &PrivateKey) -> Result<Token, String> {
    let next = PrivateKey::generate().map_err(|error| error.to_string())?;
    block["format"] = FORMAT.into();
    block["id"] = wire::random_nonce().map_err(|error| format!("making an id: {error}"))?.into();
    block["next_key"] = next.public().text().into();
    let text = block.to_string();
    let parsed = wire::parse(&text).map_err(|wrong| wrong.to_string())?;
    let signature = key.sign_text(&canonical(&parsed, Form::Ascii, Some("signature")));
    block["signature"] = signature.into();
    blocks.push(block);
    Token::read(&json!({"blocks": blocks, "proof": next.text()}).to_string())
}

fn first_block(value: &Value, signed: &str, proof: &PrivateKey) -> Result<Token, String> {
    const MEMBERS: [&str; 10] = [
        "format",
        "id",
        "issuer",
        "agent_id",
        "issued_at",
        "expires_at",
        "nodes",
        "grant",
        "next_key",
        "signature",
    ];
    let members = members(value, &MEMBERS)?;
    let issuer = key(members, "issuer")?;
    let block = read_block(value, members, signed, &issuer)?;
    let agent_id = text(members, "agent_id")?;
    check_id(agent_id).map_err(|why| format!("names an agent_id, {agent_id:?}, that {why}"))?;
    let issued_at = seconds(members, "issued_at")?.ok_or("has no \"issued_at\"")?;
    let expires_at = block.narrowing.expires_at.ok_or("has no \"expires_at\"")?;
    let life = expires_at.checked_sub(issued_at).filter(|life| (1..=MOST_SECONDS).contains(life));
    if life.is_none() {
        return Err(format!("must end 1 to {MOST_SECONDS} s after it was issued"));
    }
    let nothing = Grant::default();
    let grant = block.narrowing.grant.clone().ok_or("has no \"grant\"")?;
    if grant.beyond(&nothing).is_none() {
        return Err("grants nothing".into());
    }
    Ok(Token {
        issuer,
        agent_id: agent_id.to_owned(),
        issued_at,
        expires_at,
        nodes: block.narrowing.nodes.clone(),
        grant,
        proof: proof.clone(),
        blocks: vec![block],
    })
}

fn read_block(
    value: &Value,
    members: &Map<String, Value>,
    signed: &str,
    by: &PublicKey,
) -> Result<Block, String> {
    if text(members, "format")? != FORMAT {
        return Err(format!("has another format than {FORMAT:?}"));
    }
    if !by.verifies(signed, text(members, "signature")?) {
        return Err("is not signed by the key that stands before it".into());
    }
    let id = text(members, "id")?;
    if !is_id(id) {
        return Err(format!("has an id that is not 1 to {ID_BYTES} letters, digits and dashes"));
    }
    let nodes = match members.get("nodes") {
        None => None,
        Some(nodes) => Some(read_nodes(nodes)?),
    };
    let grant =
        members.get("grant").map(|grant| read_grant(grant).map_err(|why| format!("grants wrongly: {why}")));
    Ok(Block {
        id: id.to_owned(),
        json: value.clone(),
        next_key: key(members, "next_key")?,
        narrowing: Narrowing {
            expires_at: seconds(members, "expires_at")?,
            nodes,
            grant: grant.transpose()?,
        },
    })
}

/// Whether a text can be a block's id.
pub fn is_id(text: &str) -> bool {
    (1..=ID_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Reads what a token, or a key for tokens, grants: scheduling is the manager's alone.
///
/// # Errors
/// What is wrong.
pub fn read_grant(value: &Value) -> Result<Grant, String> {
    let grant = Grant::read(value)?;
    let scheduling = groups::calls("scheduling").unwrap_or_default();
    match scheduling.iter().any(|call| grant.has(call)) {
        true => Err("scheduling is the manager's alone".into()),
        false => Ok(grant),
    }
}

/// The grant that names and scopes make, as people and agents say it: groups, calls or capabilities, and what some
/// of them are narrowed to, which names them, too. No names: all that `of` has.
///
/// # Errors
/// A name or a scope that is wrong.
pub fn named_grant(
    of: Option<&Grant>,
    names: Option<&[String]>,
    scopes: &[(String, Value)],
) -> Result<Grant, String> {
    let mut grant = Grant::default();
    match (names, of) {
        (Some(names), _) => names.iter().try_for_each(|name| grant.add(name, None))?,
        (None, Some(of)) => {
            groups::calls_of_all().filter(|call| of.has(call)).try_for_each(|call| grant.add(call, None))?;
        }
        (None, None) => {}
    }
    scopes.iter().try_for_each(|(name, scope)| grant.add(name, Some(scope)))?;
    Ok(grant)
}

fn read_nodes(value: &Value) -> Result<BTreeSet<String>, String> {
    let wrong = || format!("has \"nodes\" that are not a list of 1 to {MOST_NODES} names");
    let list = value.as_array().filter(|list| (1..=MOST_NODES).contains(&list.len())).ok_or_else(wrong)?;
    let names = list.iter().map(|name| {
        let name = name.as_str().ok_or_else(wrong)?;
        check_id(name).map_err(|why| format!("names a node, {name:?}, that {why}"))?;
        Ok(name.to_owned())
    });
    names.collect()
}

fn members<'a>(value: &'a Value, known: &[&str]) -> Result<&'a Map<String, Value>, String> {
    let members = value.as_object().ok_or("is no object")?;
    match members.keys().find(|name| !known.contains(&name.as_str())) {
        Some(odd) => Err(format!("has a member {odd:?} that does not belong there")),
        None => Ok(members),
    }
}

fn text<'a>(members: &'a Map<String, Value>, name: &str) -> Result<&'a str, String> {
    members.get(name).and_then(Value::as_str).ok_or_else(|| format!("has no {name:?}, a text"))
}

fn key(members: &Map<String, Value>, name: &str) -> Result<PublicKey, String> {
    let key = PublicKey::parse(text(members, name)?).and_then(PublicKey::usable);
    key.map_err(|_| format!("has a {name:?} that is no public key"))
}

fn seconds(members: &Map<String, Value>, name: &str) -> Result<Option<i64>, String> {
    let whole =
        |value: &Value| value.as_i64().ok_or_else(|| format!("has a {name:?} that is not whole seconds"));
    members.get(name).map(whole).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PrivateKey {
        PrivateKey::generate().unwrap()
    }

    fn grant(value: Value) -> Grant {
        Grant::read(&value).unwrap()
    }

    fn names(names: &[&str]) -> Option<BTreeSet<String>> {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn sample(key: &PrivateKey) -> Token {
        let all =
            grant(json!({"groups": ["process", "http"], "scopes": {"run": {"commands": ["ps", "df"]}}}));
        Token::issue(key, "scout", 1000, 2000, names(&["a", "b"]), &all).unwrap()
    }

    fn narrowing(value: Value) -> Narrowing {
        Narrowing { grant: Some(grant(value)), ..Narrowing::default() }
    }

    /// Signs what it changes, with the key that a holder has.
    fn with_forged(token: &Token, change: impl FnOnce(&mut Value)) -> Result<Token, String> {
        let mut block = json!({});
        change(&mut block);
        let blocks = token.blocks.iter().map(|block| block.json.clone()).collect();
        with_block(blocks, block, &token.proof)
    }

    #[test]
    fn what_is_issued_is_read_and_each_block_narrows() {
        let key = key();
        let token = sample(&key);
        let again = Token::read(&token.text()).unwrap();
        assert_eq!((again.agent_id(), again.expires_at(), again.id()), ("scout", 2000, token.id()));
        assert!(
            *again.issuer() == key.public() && again.grant().has("run") && again.grant().has("http_request")
        );
        let narrow = Narrowing {
            expires_at: Some(1500),
            nodes: names(&["b"]),
            grant: Some(grant(
                json!({"capabilities": ["run"], "scopes": {"run": {"commands": ["df", "sh"]}}}),
            )),
        };
        let narrower = token.narrow(&narrow).unwrap();
        let narrower = Token::read(&narrower.text()).unwrap();
        assert_eq!((narrower.expires_at(), narrower.nodes()), (1500, names(&["b"]).as_ref()));
        assert!(narrower.grant().has("run") && !narrower.grant().has("http_request"));
        let scope = narrower.grant().scope("run").unwrap();
        assert!(scope.has_command("df") && !scope.has_command("ps") && !scope.has_command("sh"));
        assert_eq!(narrower.id(), token.id());
        assert_eq!(narrower.ids().count(), 2);
        // One that asks for a later end gets the earlier one.
        let later = Narrowing { expires_at: Some(9999), ..Narrowing::default() };
        assert_eq!(narrower.narrow(&later).unwrap().expires_at(), 1500);
    }

    #[test]
    fn a_block_that_widens_makes_it_none() {
        let token = sample(&key());
        let narrower = token.narrow(&narrowing(json!({"capabilities": ["run"]}))).unwrap();
        for (of, block, part) in [
            (&token, json!({"grant": {"groups": ["files"]}}), "it grants \"resources\""),
            (&narrower, json!({"grant": {"groups": ["http"]}}), "it grants \"http_request\""),
            (&token, json!({"nodes": ["a", "c"]}), "the node \"c\""),
            (&token, json!({"expires_at": 2001}), "ends later"),
            (&token, json!({"agent_id": "other"}), "\"agent_id\" that does not belong"),
            (&token, json!({"issued_at": 1}), "\"issued_at\" that does not belong"),
            (&token, json!({"grant": {"groups": ["process"]}, "or": 1}), "\"or\" that does not belong"),
        ] {
            let why = with_forged(of, |new| *new = block.clone()).unwrap_err();
            assert!(why.contains(part), "{block}: {why}");
        }
        assert!(token.narrow(&narrowing(json!({"groups": ["management"]}))).unwrap_err().contains("widens"));
    }

    #[test]
    fn blocks_that_are_changed_moved_cut_or_forged_are_refused() {
        let token = sample(&key());
        let second = token.narrow(&narrowing(json!({"groups": ["process"]}))).unwrap();
        let third = second.narrow(&narrowing(json!({"capabilities": ["run"]}))).unwrap();
        let refused = |change: &dyn Fn(&mut Value), part: &str| {
            let mut json = third.to_json();
            change(&mut json);
            let why = Token::read(&json.to_string()).unwrap_err();
            assert!(why.contains(part), "{part:?}: {why}");
        };
        let list = |json: &mut Value| json["blocks"].as_array().unwrap().clone();
        // Cut off at the end, with the proof that is there.
        refused(&|json| json["blocks"] = list(json)[..2].into(), "cut off");
        refused(&|json| json["blocks"] = list(json)[..1].into(), "cut off");
        refused(&|json| json["blocks"] = json!([]), "1 to 16 blocks");
        refused(&|json| json["blocks"] = list(json)[1..].into(), "block 1");
        refused(
            &|json| drop(json["blocks"].as_array_mut().unwrap().remove(1)),
            "block 2 of the token is not signed",
        );
        refused(
            &|json| json["blocks"].as_array_mut().unwrap().swap(1, 2),
            "block 2 of the token is not signed",
        );
        refused(&|json| json["blocks"].as_array_mut().unwrap().swap(0, 1), "block 1");
        refused(&|json| json["blocks"][0]["expires_at"] = 3000.into(), "block 1 of the token is not signed");
        refused(
            &|json| json["blocks"][1]["grant"] = json!({"groups": ["http"]}),
            "block 2 of the token is not",
        );
        refused(&|json| json["blocks"][0]["agent_id"] = "other".into(), "not signed");
        refused(&|json| json["blocks"][0]["issuer"] = key().public().text().into(), "not signed");
        refused(&|json| json["blocks"][2]["next_key"] = key().public().text().into(), "not signed");
        refused(&|json| json["proof"] = key().text().into(), "cut off");
        refused(&|json| json["proof"] = "x".into(), "no private key");
        refused(&|json| json["more"] = 1.into(), "nothing else");
        refused(&|json| json["blocks"][1]["more"] = 1.into(), "\"more\"");
        refused(
            &|json| {
                let again = json["blocks"][2].clone();
                json["blocks"].as_array_mut().unwrap().push(again);
            },
            "block 4",
        );
        // The proof of the wider one undoes the narrowing: who has it had the wider token.
        let mut shorter = third.to_json();
        shorter["blocks"] = list(&mut shorter)[..2].into();
        shorter["proof"] = second.proof.text().into();
        assert!(Token::read(&shorter.to_string()).is_ok());
        for text in ["", "[]", "{}", r#"{"blocks":[],"blocks":[]}"#, r#"{"blocks":1,"proof":""}"#] {
            assert!(Token::read(text).is_err(), "{text}");
        }
        assert!(!format!("{third:?}").contains(&third.proof.text()));
    }

    #[test]
    fn bounds_are_kept() {
        let key = key();
        let all = grant(json!({"groups": ["process"]}));
        let issue = |end, nodes, grant: &Grant| Token::issue(&key, "scout", 1000, end, nodes, grant);
        for end in [1000, 999, i64::MIN, i64::MAX, 1001 + MOST_SECONDS] {
            assert!(issue(end, None, &all).unwrap_err().contains("must end 1 to"), "{end}");
        }
        assert!(issue(1000 + MOST_SECONDS, None, &all).is_ok());
        assert!(issue(2000, names(&[]), &all).unwrap_err().contains("nodes"));
        assert!(issue(2000, names(&["a/b"]), &all).unwrap_err().contains("a/b"));
        assert!(issue(2000, None, &Grant::default()).unwrap_err().contains("grants nothing"));
        assert!(issue(2000, None, &grant(json!({"groups": ["scheduling"]})))
            .unwrap_err()
            .contains("manager's"));
        assert!(Token::issue(&key, "../a", 1000, 2000, None, &all).unwrap_err().contains("../a"));
        let mut token = issue(2000, None, &all).unwrap();
        for _ in 1..MOST_BLOCKS {
            token = token.narrow(&Narrowing::default()).unwrap();
        }
        assert!(token.narrow(&Narrowing::default()).unwrap_err().contains("16 blocks"));
        let commands: Vec<String> = (0..1000).map(|n| format!("command-number-{n}")).collect();
        let long = grant(json!({"groups": ["process"], "scopes": {"run": {"commands": commands}}}));
        assert!(issue(2000, None, &long).unwrap_err().contains("16384 bytes"));
    }
}
