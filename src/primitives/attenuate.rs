//! `ctx.attenuate`: a narrower token from the one that an agent carries, for a clone. It widens nothing.

use crate::agent::host::CallError;
use crate::roster::token::{named_grant, Narrowing, Token};
use crate::wire::unix_now;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// What is to be left of a token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Groups, calls, capabilities; absent: all that the token says.
    #[serde(default)]
    grants: Option<Vec<String>>,
    /// By group or call: what it is narrowed to.
    #[serde(default)]
    scopes: Option<Map<String, Value>>,
    /// Names of nodes.
    #[serde(default)]
    nodes: Option<BTreeSet<String>>,
    /// Seconds from now.
    #[serde(default)]
    ttl: Option<f64>,
}

/// The narrower token, as it stands in metadata.
///
/// # Errors
/// `bad_payload`: what is asked for is wrong, or more than the token says.
pub(super) fn attenuate(token: &Token, args: Args) -> Result<Value, CallError> {
    let bad = |why: String| CallError::new("bad_payload", why);
    let ttl = match args.ttl {
        Some(ttl) if ttl.is_nan() || ttl < 1.0 => {
            return Err(bad(format!("ttl must be at least one second, not {ttl}")))
        }
        ttl => ttl.map(|ttl| ttl.min(1e10) as i64),
    };
    let scopes: Vec<(String, Value)> = args.scopes.unwrap_or_default().into_iter().collect();
    let grant = match (&args.grants, scopes.is_empty()) {
        (None, true) => None,
        (names, _) => Some(named_grant(Some(token.grant()), names.as_deref(), &scopes).map_err(bad)?),
    };
    let narrowing =
        Narrowing { expires_at: ttl.map(|ttl| unix_now().saturating_add(ttl)), nodes: args.nodes, grant };
    token.narrow(&narrowing).map(|token| token.to_json()).map_err(bad)
}
